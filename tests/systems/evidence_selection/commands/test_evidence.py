"""``steersman evidence``: sets are measured, selectors trained and used, absent ones are told."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner

pytest.importorskip("bm25s", reason="the extra rag or demo")

from steersman.cli import main
from steersman.points.state_bytes import pack_state, unpack_state
from tests.providers.chat_server import chat_server
from tests.providers.scripted import told
from tests.systems.evidence_selection.commands.evidence_sets import rows, write_bands


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Twelve bands on disk, in two conversations' worth of questions."""
    folder = tmp_path_factory.mktemp("data")
    write_bands(folder / "bands")
    return folder


def run(data, home, *arguments, status=0):
    asked = ["evidence", *map(str, arguments), "--data", str(data), "--home", str(home), "--words"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == status, done.output
    return done.output


MEASURED = ("evaluate", "--sets", "bands", "--policies", "+BC, linear;oracle", "--picks", "2")


def test_policies_are_measured_and_written_down(data, tmp_path):
    page, log = tmp_path / "page.html", tmp_path / "log.jsonl"
    said = run(data, tmp_path, *MEASURED, "--report", page, "--log", log)
    assert "+BC, linear" in said
    assert f"report: {page}" in said
    for part in ("bands: reading", "bands: learning and selecting: 100 %", "bands: intervals"):
        assert part in said, "how far it is, where there is no terminal to draw bars on"
    assert "oracle" in page.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["kind"] == "config"
    assert sum(line["kind"] == "selection" for line in lines) == 3 * 12


def test_the_same_question_twice_gives_the_same_figures(data, tmp_path):
    one, other = (json.loads(run(data, tmp_path, *MEASURED, "--json")) for _ in range(2))
    figures = {name: told for name, told in one["figures"].items() if "latency" not in name}
    assert figures == {name: other["figures"][name] for name in figures}
    assert figures["bands/oracle/all_gold"]["value"] == 1.0
    ahead = figures["bands/+BC, linear less top-k, fused/all_gold"]
    assert ahead["value"] > 0.5
    assert one["missing"] == []


def test_a_set_that_is_absent_is_told_and_the_others_are_measured(data, tmp_path):
    page = tmp_path / "page.html"
    asked = ("evaluate", "--sets", "bands,coral", "--policies", "oracle", "--report", page)
    said = run(data, tmp_path, *asked, status=1)
    assert "missing: coral: the set 'coral'" in said
    assert "huggingface.co/datasets/ariya2357/CORAL" in page.read_text(encoding="utf-8")
    said = run(data, tmp_path, "evaluate", "--sets", "coral", status=1)
    assert "multi-turn questions over web pages" in said


def test_a_set_of_too_few_questions_loses_no_other(data, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(data, both)
    shutil.copytree(data / "bands", both / "few")
    file = both / "few" / "questions.jsonl"
    file.write_text("\n".join(file.read_text(encoding="utf-8").splitlines()[:3]), encoding="utf-8")
    asked = ("evaluate", "--sets", "few,bands", "--policies", "oracle")
    said = run(both, tmp_path, *asked, status=1)
    assert "missing: few: folds is 5" in said
    assert "oracle" in said


@pytest.mark.slow
def test_what_was_not_searched_or_not_judged_is_told(data, tmp_path):
    shutil.copytree(data / "bands", tmp_path / "some")
    file = tmp_path / "some" / "questions.jsonl"
    asked = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    asked[0]["gold"], asked[1]["gold"] = [], ["gone"]
    file.write_text("".join(json.dumps(one) + "\n" for one in asked), encoding="utf-8")
    how = ("evaluate", "--sets", "some", "--policies", "oracle", "--folds", "2", "--passages", "0")
    page = tmp_path / "page.html"
    said = run(tmp_path, tmp_path, *how, "--report", page)
    assert "passages of the collection were not searched, which makes the search easier" in said
    for one in ("1 of its questions have nothing to judge by, and were left out",
                "1 of its gold passages are not in its collection"):  # fmt: skip
        assert one in said
        assert one in page.read_text(encoding="utf-8")


def test_rerankers_that_cannot_be_had_are_told(data, tmp_path):
    page = tmp_path / "page.html"
    asked = ("evaluate", "--sets", "bands", "--policies", "oracle", "--ablations")
    run(data, tmp_path, *asked, "--report", page)
    told = page.read_text(encoding="utf-8")
    assert "needs vectors; leave out --words" in told
    assert "no usable model in " in told


def test_what_cannot_be_written_is_told_before_the_work(data, tmp_path):
    (tmp_path / "taken").write_text("")
    page = tmp_path / "taken" / "page.html"
    said = run(data, tmp_path, *MEASURED, "--report", page, status=1)
    assert f"cannot write {page}: " in said
    assert "bands: reading" not in said


def test_an_unknown_policy_is_refused_with_those_there_are(data, tmp_path):
    said = run(data, tmp_path, "evaluate", "--sets", "bands", "--policies", "magic", status=1)
    assert "unknown policy 'magic'; allowed: top-k, fused" in said


def test_answers_are_asked_of_a_server_and_kept(data, tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_LLM_KEY", "secret")
    with chat_server() as server:
        server.answer = "3 bridges"
        asked = (*MEASURED, "--answers", server.url(), "--model", "small", "--json")
        found = json.loads(run(data, tmp_path, *asked))["figures"]
        assert found["bands/oracle/em"]["value"] == pytest.approx(1 / 12)
        assert found["bands/oracle/attributed"]["value"] == pytest.approx(1 / 12)
        before = len(server.asked)
        assert {headers["authorization"] for _, headers, _ in server.asked} == {"Bearer secret"}
        run(data, tmp_path, *asked)
        assert len(server.asked) == before
        said = run(data, tmp_path, *MEASURED, "--answers", server.url(), status=1)
        assert "name it with --model" in said
    for more, said in (
        (
            ("--model", "big"),
            "unknown local model 'big' in --model: expected smollm2",
        ),
        (("--model", "gemma3-270m", "--judge"), "gemma3-270m cannot follow instructions"),
    ):
        assert said in run(data, tmp_path, *MEASURED, "--answers", "local", *more, status=1)


def test_a_selector_is_trained_kept_and_used(data, tmp_path):
    pytest.importorskip("lightgbm", reason="the extra evidence")
    file = tmp_path / "selector.state"
    trained = json.loads(
        run(data, tmp_path, "train", "--set", "bands", "--out", file, "--picks", 2, "--json")
    )
    assert (trained["questions"], trained["query_form"]) == (12, "last")
    asked = "How many bridges has the town where the band Yes2 comes from?"
    use = ("select", asked, "--set", "bands", "--picks", 2, "--json")
    ranked = json.loads(run(data, tmp_path, *use))
    learned = json.loads(run(data, tmp_path, *use, "--selector", file))
    assert [one["step"] for one in learned] == [1, 2]
    assert ranked[0]["id"] == "b2"
    assert ranked[0]["why"].startswith("fused")
    # What it was trained for is kept with it: adopted, or refused.
    assert json.loads(run(data, tmp_path, *use[:4], "--json", "--selector", file)) == learned
    for more, said in (
        (("--picks", 3), "picks is 3, and the selector was trained for 2"),
        (("--may-stop",), "the selector was not trained to stop"),
    ):
        assert said in run(data, tmp_path, *use[:4], *more, "--selector", file, status=1)
    state = unpack_state(file.read_bytes())
    file.write_bytes(pack_state({name: of for name, of in state.items() if name != "selector"}))
    assert "has no training setup" in run(data, tmp_path, *use[:-1], "--selector", file, status=1)
    file.write_bytes(b"no state")
    assert "Error" in run(data, tmp_path, *use[:-1], "--selector", file, status=1)


@pytest.fixture
def no_ray(monkeypatch):
    """Ray is not installed, whether it is or not."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.exceptions", raising=False)


@pytest.mark.usefixtures("no_ray")
def test_a_selector_learns_from_feedback_without_gold(data, tmp_path, caplog):
    pytest.importorskip("lightgbm", reason="the extra evidence")
    file = tmp_path / "selector.state"
    ask = ("train", "--set", "bands", "--out", file, "--picks", 2, "--from", "feedback")
    told = json.loads(run(data, tmp_path, *ask, "--json"))
    assert (told["learned_from"], told["questions"]) == ("feedback", 12)
    made = file.read_bytes()
    # The same bytes again without any gold, and with a cluster that is not installed.
    blind = tmp_path / "blind"
    shutil.copytree(data, blind)
    questions = blind / "bands" / "questions.jsonl"
    asked = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    questions.write_text(rows(one | {"gold": []} for one in asked), encoding="utf-8")
    run(blind, tmp_path, *ask)
    assert file.read_bytes() == made, "where nobody marked gold, the same is learned"
    said = run(blind, tmp_path, *ask[:-2], status=1)
    assert "no question of bands has gold passages" in said
    run(data, tmp_path, *ask, "--ray", "auto")
    assert "Ray is not installed; working on this machine only" in caplog.text
    assert file.read_bytes() == made
    for more, said in (
        (("--may-stop",), "--from feedback cannot learn when to stop"),
        (("--ray", "nonsense"), "allowed are auto and HOST:PORT"),
    ):
        assert said in run(data, tmp_path, *ask, *more, status=1)
    assert "--ray needs --from feedback" in run(
        data, tmp_path, *ask[:-2], "--ray", "auto", status=1
    )


@pytest.mark.usefixtures("no_ray")
def test_without_ray_an_evaluation_says_so_and_works_here(data, tmp_path, caplog):
    one, other = (json.loads(run(data, tmp_path, *MEASURED, "--json", *more))["figures"]
                  for more in (("--ray", "auto"), ()))  # fmt: skip
    assert "Ray is not installed; working on this machine only" in caplog.text
    assert {name: one[name] for name in one if "latency" not in name} == {
        name: other[name] for name in other if "latency" not in name
    }


def test_who_stops_when_sure_needs_somebody_to_ask(data, tmp_path):
    said = run(data, tmp_path, *MEASURED, "--until-sure", status=1)
    assert "--until-sure needs an answering model; name one with --answers" in said
    pytest.importorskip("lightgbm", reason="the extra evidence")
    with chat_server() as server:
        server.answer = "3 bridges"
        asked = (*MEASURED, "--answers", server.url(), "--model", "small", "--until-sure")
        found = json.loads(run(data, tmp_path, *asked, "--json"))["figures"]
        assert found["bands/+BC, until sure/passages"]["value"] <= 2
        said = run(data, tmp_path, *asked, "--ray", "auto", status=1)
        assert "calls the model from this process; leave out --ray" in said


def test_a_judge_is_held_against_people(tmp_path):
    folder = tmp_path / "judge_human"
    folder.mkdir()
    pairs = [
        {"input": f"Say {n}.", "output_1": f"{n}.", "output_2": f"It is {n}, I think.",
         "label": 1, "subset": "made"} for n in range(12)
    ]  # fmt: skip
    (folder / "llmbar_12.jsonl").write_text(rows(pairs), encoding="utf-8")

    def longer(prompt):
        answers = told(prompt)["answers"]
        longest = max(answers, key=lambda number: len(answers[number]))
        return json.dumps({"grounds": "longer", "better": longest})

    with chat_server() as server:
        server.answer = longer
        asked = ["evidence", "judge", "--data", str(tmp_path), "--home", str(tmp_path / "home"),
                 "--answers", server.url(), "--model", "m", "--json"]  # fmt: skip
        done = CliRunner().invoke(main, asked)
        assert done.exit_code == 0, done.output
        found = json.loads(done.output)
        assert (found["pairs"], found["judged"]) == (12, 12)
        assert found["agrees_with_people"].startswith("0.000")
        assert (found["longer_taken"], found["longer_taken_by_people"]) == ("1.000", "0.000")
        assert found["reward_model"] == "not distilled: fewer than 40 verdicts"
        server.answer = "I like the first."
        done = CliRunner().invoke(main, [*asked, "--seed", "1", "--model", "other"])
        assert done.exit_code == 1
        assert json.loads(done.output)["abstains: malformed"] == 12
