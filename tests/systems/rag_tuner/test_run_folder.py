"""A run's folder: whole lines only, gone on from, refused when it is another's."""

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from steersman.errors import DataError
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.run_folder import RunFolder
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.random import Random
from steersman_systems.rag_tuner.verdict import judge
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(queries=40), tuned()
MANIFEST = {"strategy": "random", "seed": 0, "splits": (1, 2)}


def evaluations(count, known=()):
    slices = rotating(np.arange(40), 8, np.random.default_rng([0, 0]))
    return tune(Random(TUNED), WORLD, TUNED, slices, evaluations=count, seed=0, known=known)


def begun(folder):
    run = RunFolder(folder / "run")
    run.begin(MANIFEST, "policy: 1\n")
    return run


def same(one, other):
    return json.dumps(one) == json.dumps(other)


def test_what_is_written_is_told_again(tmp_path):
    run = begun(tmp_path)
    done = list(evaluations(4))
    for one in done:
        run.append(one)
    batches = run.batches()
    for one, batch in zip(done, batches, strict=True):
        assert batch.configuration == one.configuration
        assert (batch.quality == one.batch.quality).all()
        assert batch.measures == ("recall", "ndcg")
    again = list(evaluations(6, known=batches))
    assert [one.reward.value for one in again[:4]] == [one.reward.value for one in done]


def test_half_a_line_is_taken_away_by_who_goes_on_and_a_damaged_one_is_told(tmp_path):
    run = begun(tmp_path)
    for one in evaluations(3):
        run.append(one)
    file = run.folder / "episodes.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"number": 4, "conf')
    assert [one["number"] for one in run.episodes()] == [1, 2, 3]
    assert file.read_bytes() != whole  # whoever reads may be another, while the line is written
    with run.owned():
        assert file.read_bytes() == whole
    file.write_bytes(b"{half\n" + whole)
    with pytest.raises(DataError, match=r"episodes\.jsonl:1"):
        run.episodes()
    file.write_bytes(b'{"number": 1}\n')
    with pytest.raises(DataError, match="start another run"):
        run.batches()


def test_two_do_not_go_on_with_one_run(tmp_path):
    run, other = begun(tmp_path), RunFolder(tmp_path / "run")
    first, second = evaluations(2)
    with run.owned():
        run.append(first)
        with pytest.raises(DataError, match="another process is writing this run"):
            other.append(second)
        assert [one["number"] for one in other.episodes()] == [1]
    other.append(second)
    assert [one["number"] for one in run.episodes()] == [1, 2]


def test_another_run_is_refused(tmp_path):
    run = begun(tmp_path)
    run.begin(MANIFEST, "policy: 1\n")
    with pytest.raises(DataError, match="differs in seed"):
        run.begin(MANIFEST | {"seed": 1}, "policy: 1\n")
    with pytest.raises(DataError, match=r"policy\.yaml"):
        run.begin(MANIFEST, "policy: 2\n")
    with pytest.raises(DataError, match="steersman tune run"):
        RunFolder(tmp_path / "elsewhere").manifest()


def test_what_is_undefined_is_null_and_comes_back(tmp_path):
    run = begun(tmp_path)
    (one,) = evaluations(1)
    one.batch.quality[0, 0] = np.nan
    run.append(one)
    assert run.episodes()[0]["of_query"]["quality"][0][0] is None
    assert np.isnan(run.batches()[0].quality[0, 0])


def test_the_summary_and_the_verdict(tmp_path):
    run = begun(tmp_path)
    done = list(evaluations(3))
    for one in done:
        run.append(one)
    batches = [WORLD.evaluate(one.configuration, np.arange(40)) for one in done[:2]]
    run.finish(judge(*batches, TUNED))
    with (run.folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["configuration"] for row in rows] == [str(one.configuration) for one in done]
    verdict = json.loads((run.folder / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["candidate"]["variant"] == done[0].configuration.variant
    assert verdict["says"]


@pytest.mark.slow
def test_killed_midway_it_goes_on_and_pays_nothing_twice(tmp_path):
    """A real process, killed with -9; what it had paid for is in the log, each once."""
    program = tmp_path / "tune.py"
    program.write_text(
        textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from tests.systems.rag_tuner.test_run_folder import begun, evaluations
        run = begun(Path(sys.argv[1]))
        for one in evaluations(400, known=run.batches()):
            if one.number > len(run.episodes()):
                run.append(one)
    """)
    )
    command = [sys.executable, str(program), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    file = tmp_path / "run" / "episodes.jsonl"
    counts = []
    for _ in range(2):
        process = subprocess.Popen(command, env=environment)
        wanted = (counts[-1] if counts else 0) + 5
        while not file.exists() or file.read_bytes().count(b"\n") < wanted:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        counts.append(file.read_bytes().count(b"\n"))
    lines = RunFolder(tmp_path / "run").episodes()
    assert [one["number"] for one in lines] == list(range(1, len(lines) + 1))
    expected = [one.configuration.parts() for one in evaluations(len(lines))]
    assert same([one["configuration"] for one in lines], expected)


def test_a_policy_that_is_gone_is_told(tmp_path):
    begun(tmp_path)
    (tmp_path / "run" / "policy.yaml").unlink()
    with pytest.raises(DataError, match="is missing; restore it"):
        RunFolder(tmp_path / "run").begin(MANIFEST, "policy: 1\n")
