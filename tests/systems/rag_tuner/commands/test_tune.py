"""``steersman tune``: a recording is tuned on, judged once and swept; runs go on."""

import importlib.util
import json
import shutil
from dataclasses import replace
from datetime import date

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.errors import DataError
from steersman.retrieval.dense import MiniLM
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.manifest import describe, write_manifest
from steersman_systems.rag_tuner.recorded import load_recorded
from steersman_systems.rag_tuner.run_folder import RunFolder
from tests.systems.rag_tuner.logs import rows, some, written
from tests.systems.rag_tuner.worlds import world


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    file = tmp_path_factory.mktemp("recording") / "world.npz"
    world(queries=120).save(file)
    return file


def run(*arguments, status=0):
    done = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    assert status is None or done.exit_code == status, done.output
    return done.stdout if status == 0 else done.output


def configurations(folder):
    lines = (folder / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["configuration"] for line in lines]


def test_a_gain_is_found_judged_and_written_down(recording, tmp_path):
    out = tmp_path / "run"
    asked = ("run", recording, "--out", out, "--evaluations", 30, "--baseline", "variant=rrf,k=3")
    found = json.loads(run(*asked, "--json"))
    assert found["verdict"] == "gain"
    assert found["low"] > 0
    names = sorted(file.stem for file in out.iterdir())
    assert names == ["episodes", "manifest", "policy", "summary", "verdict"]
    assert len((out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()) == 30
    again = json.loads(run(*asked, "--json"))
    assert again == found
    assert len((out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()) == 30


def test_more_evaluations_go_on(recording, tmp_path):
    asked = ("run", recording, "--out", tmp_path / "run", "--strategy", "random")
    few = run(*asked, "--evaluations", 3, "--baseline", "variant=bm25,k=32,rerank=on", status=0)
    assert "Gain" in few
    more = ("--evaluations", 5, "--baseline", "variant=bm25,k=32,rerank=on")
    assert "are used once" in run(*asked, *more, status=1)
    (tmp_path / "run" / "verdict.json").unlink()  # as if it had been killed before it judged
    run(*asked, *more)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2, 3, 4, 5]


def test_the_log_of_another_recording_is_refused(recording, tmp_path):
    other = tmp_path / "other.npz"
    world(queries=120, seed=3).save(other)
    asked = ("--out", tmp_path / "run", "--strategy", "random", "--evaluations", 2)
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, *asked, *held)
    assert "differs in recorded" in run("run", other, *asked, *held, status=1)


def test_a_run_under_other_weights_begins_with_what_was_paid_for(recording, tmp_path):
    recording = shutil.copy(recording, tmp_path)  # judged by nobody yet
    first, second, policy = tmp_path / "first", tmp_path / "second", tmp_path / "dear.yaml"
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, "--out", first, "--evaluations", 20, *held)
    shipped = (first / "policy.yaml").read_text(encoding="utf-8")
    assert shipped.count("delta: 0.2") == 1
    policy.write_text(shipped.replace("delta: 0.2", "delta: 0.6"), encoding="utf-8")
    asked = ("run", recording, "--out", second, "--policy", policy, "--after", first, *held)
    told = json.loads(run(*asked, "--evaluations", 1, "--json"))
    tried, (own,) = configurations(first), configurations(second)
    found = json.loads((second / "verdict.json").read_text(encoding="utf-8"))["candidate"]
    assert found in tried
    assert found != own
    assert json.loads(run(*asked, "--evaluations", 1, "--json")) == told  # and so again
    # What judged the first run judges the second as well, and the verdict says it.
    assert "already evaluated the run first" in told["reused"]
    verdict = json.loads((second / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["reused"] == told["reused"]
    said = run(*asked, "--evaluations", 1, "--seed", 9, "--out", tmp_path / "other", status=1)
    assert "differs in seed" in said


def test_what_is_not_as_its_manifest_says_is_not_recorded(tmp_path):
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "passages.jsonl").write_text('{"id": "p", "text": "The valve opens at ten bar."}\n')
    row = {"id": "a", "question": "When does the valve open?", "gold": ["p"]}
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    named = {"id": "handbook-v1", "source": "our wiki", "commit": "9e1c3f0"}
    made = describe(folder, **named, updated_at=date(2026, 11, 1))
    write_manifest(made, folder / "manifest.yaml")
    (folder / "questions.jsonl").write_text(json.dumps({**row, "id": "b"}) + "\n")
    said = run("record", "handbook", "--data", tmp_path, "--out", tmp_path / "x.npz", status=1)
    assert "is not handbook-v1" in " ".join(said.split())
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.slow
def test_a_question_that_is_asked_twice_is_recorded_once(tmp_path):
    pytest.importorskip("bm25s")
    try:
        MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "passages.jsonl").write_text('{"id": "p", "text": "The valve opens at ten bar."}\n')
    asked = [
        ("a", "When does the valve open?"),
        ("b", "when does the VALVE open"),
        ("c", "At ten?"),
    ]
    rows = [{"id": name, "question": text, "gold": ["p"]} for name, text in asked]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "questions.jsonl").write_text(lines, encoding="utf-8")
    file = tmp_path / "handbook.npz"
    said = json.loads(run("record", "handbook", "--data", tmp_path, "--out", file, "--json"))
    assert (said["questions"], said["repeats_left_out"]) == (2, 1)
    assert said["repeats_across_splits"] == 0
    assert load_recorded(file).queries == ("a", "c")


def test_a_run_that_is_under_way_elsewhere_is_let_alone(recording, tmp_path):
    asked = ("run", recording, "--out", tmp_path / "run", "--strategy", "random")
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    run(*asked, "--evaluations", 2, *held)
    before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    with RunFolder(tmp_path / "run").owned():
        said = run(*asked, "--evaluations", 2, *held, status=1)
    assert "another process is writing this run" in said
    # Half a line of a run that goes on is left to it by the run that comes after it.
    (tmp_path / "run" / "episodes.jsonl").write_bytes(before + b'{"half')
    after = ("--out", tmp_path / "next", "--after", tmp_path / "run", "--evaluations", 1)
    run("run", recording, *after, "--strategy", "random", *held)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == before + b'{"half'


def test_no_gain_is_said_and_told_by_the_status(recording, tmp_path):
    held = "variant=hybrid,fusion_weight=0.6,expansion=on,k=10"
    said = run("run", recording, "--out", tmp_path / "run", "--evaluations", 4,
               "--strategy", "random", "--baseline", held, status=1)  # fmt: skip
    assert "No gain is shown" in said or "Loss" in said


def test_what_is_best_under_other_weights(recording):
    rows = json.loads(run("sweep", recording, "--json"))
    assert len(rows) == 25
    assert {"gamma", "delta", "best", "ahead"} <= set(rows[0])
    assert "+expansion" in run("sweep", recording)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--strategy", "bandit"), "unknown strategy 'bandit'"),
        (("--baseline", "k=x"), "expected parts such as"),
        (("--baseline", "rerank=maybe"), "expected parts such as"),
        (("--baseline", "variant=splade"), "variant is 'splade'"),
        (("--policy", "/no/such.yaml"), "such.yaml"),
    ],
)
def test_what_cannot_be_tuned(recording, tmp_path, more, says):
    assert says in run("run", recording, "--out", tmp_path / "run", *more, status=1)
    assert not (tmp_path / "run").exists()


def test_what_is_refused_is_refused_before_anything_is_written(recording, tmp_path):
    """Whoever mends it shall not find a folder that holds another run."""
    recording = shutil.copy(recording, tmp_path)
    out, first = tmp_path / "run", tmp_path / "first"
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, "--out", first, "--strategy", "random", "--evaluations", 2, *held)
    refused = [
        (("--strategy", "halving", "--holdout", "dev"), "has the splits"),
        (("--baseline", "variant=bm25,k=99"), "was not recorded"),
        (("--after", tmp_path / "none"), "no evaluations in"),
        (("--after", first, "--seed", 5), "differs in seed"),
    ]
    if importlib.util.find_spec("torch"):
        refused.append((("--strategy", "ppo", "--after", first), "learns only from its own draws"))
    for more, says in refused:
        said = " ".join(run("run", recording, "--out", out, *more, status=1).split())
        assert says in said
        assert not out.exists()
    wide = tmp_path / "wide.yaml"
    shipped = (first / "policy.yaml").read_text(encoding="utf-8")
    assert shipped.count("max: 32") == 1
    wide.write_text(shipped.replace("max: 32", "max: 64"), encoding="utf-8")
    said = run("run", recording, "--out", out, "--policy", wide, status=1)
    assert "was not recorded" in " ".join(said.split())
    assert not out.exists()
    (tmp_path / "file").write_text("x")
    assert "is a file" in run("run", recording, "--out", tmp_path / "file", status=2)


def test_a_question_on_both_sides_is_refused(tmp_path):
    made = world(queries=120)
    file = tmp_path / "twice.npz"
    replace(made, queries=("q",) * 120).save(file)
    said = " ".join(run("run", file, "--out", tmp_path / "run", status=1).split())
    assert "questions are on both sides of the split" in said
    assert not (tmp_path / "run").exists()


def test_the_latest_judge_what_was_tuned_before(tmp_path):
    days = tuple(f"2026-{1 + place % 12:02}-{1 + place // 12:02}" for place in range(120))
    made, file = replace(world(queries=120), times=days), tmp_path / "dated.npz"
    made.save(file)
    assert load_recorded(file).times == days
    held = ("--strategy", "random", "--evaluations", 3, "--baseline", "variant=bm25,k=32,rerank=on")
    run("run", file, "--out", tmp_path / "run", *held, "--temporal", "--held-out", 0.25)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    tuned = {days[place] for line in lines for place in json.loads(line)["queries"]}
    assert max(tuned) <= sorted(days)[89]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["temporal"] is True
    both = run("run", file, "--out", tmp_path / "x", "--temporal", "--holdout", "a", status=1)
    assert "give only one" in both
    replace(made, times=("soon", *days[1:])).save(file)
    said = run("run", file, "--out", tmp_path / "y", *held, "--temporal", status=1)
    assert "question 'q0' has last_updated 'soon'" in " ".join(said.split())
    assert not (tmp_path / "y").exists()


def test_turns_of_one_conversation_stand_on_one_side(tmp_path):
    talks = tuple(f"talk {place // 4}" for place in range(120))
    splits = tuple("test" if place < 42 else "train" for place in range(120))
    made, file = replace(world(queries=120), groups=talks, splits=splits), tmp_path / "talks.npz"
    made.save(file)
    assert load_recorded(file).groups == talks
    held = ("--strategy", "random", "--evaluations", 3, "--baseline", "variant=bm25,k=32,rerank=on")
    run("run", file, "--out", tmp_path / "run", *held)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    tuned = {place for line in lines for place in json.loads(line)["queries"]}
    assert len(tuned) == len({talks[place] for place in tuned}) * 4 == 60
    said = run("run", file, "--out", tmp_path / "two", *held, "--holdout", "test", status=1)
    assert "1 conversations are on both sides of the split, such as 'talk 10'" in said
    assert not (tmp_path / "two").exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_recorded(tmp_path):
    run("record", "none", "--data", tmp_path, "--out", tmp_path, status=2)
    (tmp_path / "file").write_text("x")
    said = run("record", "none", "--data", tmp_path, "--out", tmp_path / "file" / "x.npz", status=1)
    assert "cannot write" in said


def test_whether_there_are_enough_questions_is_said_beforehand(recording, tmp_path):
    held = ("--baseline", "variant=bm25,k=32,rerank=on", "--evaluations", 2, "--strategy", "random")
    told = json.loads(run("run", recording, "--out", tmp_path / "a", *held, "--json"))
    assert "60 held-out queries show a gain of" in told["beforehand"]
    assert "too few" in told["beforehand"]
    much = json.loads(
        run("run", recording, "--out", tmp_path / "b", *held, "--effect", 0.9, "--json")
    )
    assert "they are enough" in much["beforehand"]
    done = CliRunner().invoke(
        main, ["tune", "run", str(recording), "--out", str(tmp_path / "c"), *map(str, held)]
    )
    assert "Beforehand: 60 held-out" in done.stderr


def test_a_log_says_what_choosing_otherwise_would_bring(recording, tmp_path):
    out = tmp_path / "run"
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, "--out", out, "--strategy", "random", "--evaluations", 400, *held)
    rows = json.loads(run("estimate", out, "--among", "rerank=off", "--json"))
    assert {row["estimator"] for row in rows} == {"ips", "snips", "dr"}
    assert all(row["low"] < row["value"] < row["high"] for row in rows)
    said = run("estimate", out, "--among", "variant=bm25,k=5", status=1)
    assert "no estimate" in said
    assert "unknown part 'size'" in run("estimate", out, "--among", "size=3", status=1)
    halving = tmp_path / "halving"
    run("run", recording, "--out", halving, "--strategy", "halving", "--evaluations", 3, *held,
        status=None)  # fmt: skip
    assert "is deterministic" in " ".join(run("estimate", halving, status=1).split())


def test_whether_questions_leak_is_told(recording, tmp_path):
    held = ("--baseline", "variant=bm25,k=32,rerank=on", "--evaluations", 2)
    told = json.loads(run("run", recording, "--out", tmp_path / "a", *held, "--json"))
    assert "was not checked" in told["leakage"]
    checked = {"repeats_left_out": 3, "repeats_across_splits": 1, "repeats_near": 0.8}
    clean = tmp_path / "clean.npz"
    made = world(queries=120)
    replace(made, about={**made.about, **checked}).save(clean)
    told = json.loads(run("run", clean, "--out", tmp_path / "b", *held, "--json"))
    assert told["leakage"].startswith("No question stands on both sides: 3 that repeat another")


def test_what_is_no_recording(tmp_path):
    assert "steersman tune record" in run("run", tmp_path / "none.npz", status=1)
    assert "Usage" in run("run", status=2)
    run("run", tmp_path / "none.npz", "--evaluations", 0, status=2)


def test_a_holdout_judges_one_run_and_no_other(tmp_path):
    made = world(queries=120)
    splits = tuple("test" if place % 3 == 0 else "train" for place in range(120))
    file = tmp_path / "split.npz"
    replace(made, splits=splits).save(file)
    asked = ("--strategy", "random", "--evaluations", 2, "--holdout", "test")
    held = ("--baseline", "variant=bm25,k=32,rerank=on")
    first = run("run", file, "--out", tmp_path / "one", *asked, *held)
    assert "on 40 held-out queries" in " ".join(first.split())
    lines = (tmp_path / "one" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    seen = {place for line in lines for place in json.loads(line)["queries"]}
    assert not seen & set(range(0, 120, 3))
    assert run("run", file, "--out", tmp_path / "one", *asked, *held) == first  # the same run
    told = run("run", file, "--out", tmp_path / "two", *asked, "--seed", 1, *held, status=1)
    assert "can be used once" in told
    assert "the run one" in told
    assert not (tmp_path / "two").exists()
    # Other weights find another configuration, also in a folder of the same name or in its place.
    policy = tmp_path / "dear.yaml"
    shipped = (tmp_path / "one" / "policy.yaml").read_text(encoding="utf-8")
    policy.write_text(shipped.replace("delta: 0.2", "delta: 0.6"), encoding="utf-8")
    weighed = (*asked, "--policy", policy, *held)
    assert "can be used once" in run(
        "run", file, "--out", tmp_path / "b" / "one", *weighed, status=1
    )
    shutil.rmtree(tmp_path / "one")
    assert "can be used once" in run("run", file, "--out", tmp_path / "one", *weighed, status=1)
    assert run("run", file, "--out", tmp_path / "one", *asked, *held) == first  # begun anew
    other = (*asked[:-1], "dev")
    assert "has the splits" in run("run", file, "--out", tmp_path / "x", *other, *held, status=1)


def test_a_log_of_some_evaluations_is_tuned_on_and_told_as_such(tmp_path):
    made, chosen = world(queries=120), some(20)
    lines = rows(made, chosen)
    log, file = written(tmp_path / "log.jsonl", lines), tmp_path / "log.npz"
    said = json.loads(run("record", "handbook", "--log", log, "--out", file, "--json"))
    assert (said["questions"], said["configurations"]) == (120, 20)
    assert said["evaluations"] == len(lines)
    worst = "variant=bm25,k=32,rerank=on"
    out, held = tmp_path / "run", ("--evaluations", 12, "--baseline")
    refused = " ".join(run("run", file, "--out", out, *held, worst, status=1).split())
    assert "on 0 questions that are tuned on and 0 that judge" in refused
    assert not out.exists()
    parts = {name: str(value) for name, value in chosen[0].parts().items()}
    switched = {"True": "on", "False": "off"}
    baseline = ",".join(f"{name}={switched.get(it, it)}" for name, it in parts.items())
    asked = ("run", file, "--out", out, *held, baseline)
    told = json.loads(run(*asked, "--json", status=None))
    assert "answers for 20 of 2,760 configurations" in told["log"]
    assert "was not checked" in told["leakage"]
    assert "A model fitted to the log" in told["beyond"]
    assert all(Configuration.of(one) in chosen for one in configurations(out))
    verdict = json.loads((out / "verdict.json").read_text(encoding="utf-8"))
    assert 15 < verdict["queries"] < 60  # of 60 held out, those that both are known on
    assert json.loads(run(*asked, "--json", status=None)) == told  # it goes on, to nothing more
    swept = json.loads(run("sweep", file, "--baseline", baseline, "--json"))
    assert {row["best"] for row in swept} <= {str(one) for one in chosen}
    assert "take factored" in run(*asked[:3], tmp_path / "x", *asked[4:], "--strategy", "tpe",
                                  status=1)  # fmt: skip
    pytest.importorskip("matplotlib")
    assert "latency" not in run("report", out, file)  # of every episode: for programs
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "All is replayed from a log of" in page
    assert "Ablations: effect of each part" not in page


def test_a_run_is_drawn_from_its_folder(recording, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "run"
    baseline = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, "--out", out, "--strategy", "random", "--evaluations", 4, *baseline)
    told = json.loads(run("report", out, recording, "--json"))
    verdict = json.loads((out / "verdict.json").read_text(encoding="utf-8"))
    assert (told["verdict"], told["says"]) == (verdict["state"], verdict["says"])
    assert told["candidate"] == verdict["candidate"]
    assert [len(told["latency"][name]) for name in ("p95_ms", "baseline_p95_ms")] == [4, 4]
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert verdict["says"].split(",")[0] in page
    for heading in ("Evaluations", "Other weights", "Ablations: effect of each part"):
        assert heading in page
    for name in ("frontier", "episodes", "shares", "latencies"):
        assert (out / "report" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_not_drawn_on_another_recording_nor_before_it_was_judged(recording, tmp_path):
    out, other = tmp_path / "run", tmp_path / "other.npz"
    world(queries=120, seed=3).save(other)
    baseline = ("--baseline", "variant=bm25,k=32,rerank=on")
    run("run", recording, "--out", out, "--strategy", "random", "--evaluations", 2, *baseline)
    assert "was not tuned on this recording" in run("report", out, other, status=1)
    (out / "verdict.json").unlink()
    assert "has no verdict" in run("report", out, recording, status=1)
    assert "has no verdict" in run("export", out, "--home", tmp_path / "home", status=1)
    assert "give the folder of a run" in run("report", tmp_path / "none", recording, status=1)
