import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.gate import load_switch
from steersman_systems.interrogator.page import write_page
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.report import compile_report, curve_by_calls, curve_by_steps
from steersman_systems.interrogator.step_log import record_steps
from steersman_systems.interrogator.targets import Target
from steersman_systems.interrogator.trial import ARMS, Plan, run_trial, work_of

ABOUT = [
    *(
        "food pizza hot question rome",
        "sea ships question oslo",
        "money claim rome",
        "sea fish cold",
    ),
    *("food soup cold claim oslo", "money question", "food pizza cold", "sea ships claim"),
]


@pytest.fixture(scope="module")
def plan(few, tmp_path_factory):
    from tests.systems.interrogator.conftest import Words  # noqa: PLC0415

    embedder = Words()
    point = point_of(few, tmp_path_factory.mktemp("point"))
    told = [embedder.target(f"{text} told before") for text in ABOUT]
    log = record_steps(
        told,
        OptionAnswerer(embedder, MemoryCache()),
        questions=few,
        rng=np.random.default_rng(5),
        steps=120,
    )
    targets = tuple(embedder.target(text) for text in ABOUT)
    return Plan(
        targets=targets,
        questions=few,
        point=point,
        log=log,
        vectors=np.stack([target.vector for target in told]),
        seeds=(0, 1),
        searched=4,
        shortlist=0,
        limit=4,
        embedder=words_of,
    )


def words_of(home):
    from tests.systems.interrogator.conftest import Words  # noqa: PLC0415

    return Words()


def point_of(questions, folder):
    from steersman_systems.configs import shipped  # noqa: PLC0415

    text = shipped("interrogator/question.yaml").read_text(encoding="utf-8")
    names = f"names: [{', '.join(questions.names)}]"
    text = re.sub(r"names: \[.*?\]", names, text, flags=re.DOTALL)
    file = folder / "question.yaml"
    file.write_text(re.sub(r"otherwise: \w+", f"otherwise: {questions.names[0]}", text))
    return load_point(questions, file)


@pytest.fixture(scope="module")
def trial(plan):
    return run_trial(plan, processes=1)


@pytest.mark.slow
def test_every_arm_investigates_every_target_with_every_seed(plan, trial):
    assert set(trial.courses) == set(ARMS)
    for runs in trial.courses.values():
        assert [len(run) for run in runs] == [8, 8]
    assert trial.names == tuple(ABOUT)
    assert work_of(plan) == 4 + 6 * 2 * 8


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(plan, trial):
    again = run_trial(plan, processes=2)
    assert again.best.tolist() == trial.best.tolist()
    for arm, runs in trial.courses.items():
        for mine, theirs in zip(runs, again.courses[arm], strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert a.similarity.tolist() == b.similarity.tolist()
                assert a.calls.tolist() == b.calls.tolist()
                assert a.hits.tolist() == b.hits.tolist()


def test_arms_share_no_answers(plan, trial):
    # Whoever comes first pays for the opening, in each arm.
    for runs in trial.courses.values():
        for run in runs:
            assert sum(int(course.calls[0]) for course in run) == 1


def test_the_search_comes_as_far_as_anyone_with_its_first_question(plan, trial):
    for place, best in enumerate(trial.best):
        assert best >= max(
            run[place].similarity[1] for runs in trial.courses.values() for run in runs
        )


def test_choosing_by_embedding_is_paid_for(trial):
    first = trial.courses["nearest"][0]
    assert max(int(course.calls[1]) for course in first) > 10  # all vocabularies at once, one time


@pytest.mark.slow
def test_progress_adds_up(plan):
    told = []
    run_trial(plan, processes=1, done=told.append)
    assert sum(told) == work_of(plan)


def test_a_report_is_plain_json_and_says_what_it_compares(trial):
    report = compile_report({"words": trial}, load_switch().gate, candidate="warm_online")
    assert json.loads(json.dumps(report)) == report
    found = report["sets"]["words"]
    assert (found["targets"], found["seeds"], found["searched"]) == (8, 2, 4)
    assert set(found["against_heuristic"]) == set(ARMS) - {"heuristic"}
    fewer = found["against_heuristic"]["warm"]["fewer_calls_to_same_similarity"]
    assert fewer["low"] <= fewer["value"] <= fewer["high"]
    assert np.mean(fewer["by_seed"]) == pytest.approx(fewer["value"])
    for one in found["against_heuristic"].values():
        for level in ("steps_to_090", "steps_to_share"):
            assert len(one[level]["by_seed"]) == 2
    asked = {arm: one["steps_to_share"]["restricted_mean"] for arm, one in found["arms"].items()}
    assert found["against_heuristic"]["nearest"]["steps_to_share"]["value"] == pytest.approx(
        asked["nearest"] - asked["heuristic"]
    )
    for arm, figures in found["arms"].items():
        reached = [[course.reached for course in run] for run in trial.courses[arm]]
        assert figures["similarity"]["value"] == pytest.approx(np.mean(reached))


def test_curves_rise_to_what_was_reached(trial):
    runs = trial.courses["heuristic"]
    reached = np.mean([[course.reached for course in run] for run in runs])
    assert curve_by_steps(runs, trial.limit)[-1] == pytest.approx(reached)
    by_calls = curve_by_calls(runs, np.linspace(0, 200, 50))
    assert (np.diff(by_calls) >= 0).all()
    assert by_calls[-1] == pytest.approx(reached)


@pytest.mark.slow
def test_the_page_needs_nothing_else(trial, tmp_path):
    report = compile_report({"<words>": trial}, load_switch().gate, candidate="warm")
    file = tmp_path / "new" / "page.html"
    write_page(file, report, {"<words>": trial}, title="A & B")
    page = file.read_text(encoding="utf-8")
    assert "&lt;words&gt;" in page
    assert "<words>" not in page
    assert "A &amp; B" in page
    assert page.count("<svg") == page.count("</figure>") == 3
    assert "all questions were tried" in page
    # A value stands above its interval, and below nothing is a true minus.
    assert re.search(r"<td>[+−]0\.\d{3}<small>\[[+−]0\.\d{3}, [+−]\d\.\d{3}\]</small></td>", page)
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 -- our own
    # Nothing is loaded: names of namespaces are the only addresses.
    assert not re.findall(r"(?:src|href)=\"(?!#)(?:https?:)?//", page)
    assert "<script" not in page
    write_page(tmp_path / "again.html", report, {"<words>": trial}, title="A & B")
    assert (tmp_path / "again.html").read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_the_page_tells_what_was_not_measured_from_what_failed(plan, tmp_path):
    from dataclasses import replace  # noqa: PLC0415

    unsearched = {"words": run_trial(replace(plan, searched=0), processes=1)}
    report = compile_report(unsearched, load_switch().gate, candidate="warm")
    states = {one["measure"]: one["state"] for one in report["sets"]["words"]["gate"]["measures"]}
    assert states["steps_to_share"] == "not_measured"
    file = tmp_path / "page.html"
    write_page(file, report, unsearched, title="T")
    page = file.read_text(encoding="utf-8")
    assert page.count(">not measured</span>") == 1
    assert page.count(">no</span>") == list(states.values()).count("failed")
    assert page.count(">cannot be known</span>") == list(states.values()).count("unknown")
    assert "8 targets, 2 seeds" in page
    assert "reached 90% of the search" not in page
    assert page.count("questions to 90% of the search") == 1  # where the gate misses it


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"arms": ("heuristic", "oracle")}, "arms are heuristic, oracle"),
        ({"arms": ("warm",)}, "heuristic is required"),
        ({"targets": ()}, "0 targets"),
        ({"seeds": ()}, "0 seeds"),
        ({"searched": 9}, "9 targets to search; allowed: 0 to 8"),
        ({"searched": -1}, "-1 targets to search"),
    ],
)
def test_a_plan_that_compares_nothing_is_refused(plan, changed, says):
    from dataclasses import replace  # noqa: PLC0415

    with pytest.raises(InputError, match=says):
        replace(plan, **changed)


def test_a_log_over_other_questions_is_refused(plan):
    from dataclasses import replace  # noqa: PLC0415

    log = replace(plan.log, names=plan.log.names[::-1])
    with pytest.raises(InputError, match="same names in the same order"):
        run_trial(replace(plan, log=log, arms=("heuristic", "warm")), processes=1)


def test_targets_of_another_embedder_are_refused(plan):
    from dataclasses import replace  # noqa: PLC0415

    other = tuple(Target.of_vector(np.ones(7)) for _ in range(2))
    with pytest.raises(InputError, match="7"):
        run_trial(replace(plan, targets=other, searched=1), processes=1)
