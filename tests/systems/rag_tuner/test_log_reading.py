"""Logs of evaluations: what is wrong in them is named, and who chose by the question is undone."""

import numpy as np
import pytest

from steersman.errors import DataError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.log_reader import read_log
from steersman_systems.rag_tuner.loop import tune
from steersman_systems.rag_tuner.run_folder import RunFolder
from steersman_systems.rag_tuner.slices import rotating
from steersman_systems.rag_tuner.strategies.factory import build_strategy
from tests.systems.rag_tuner.logs import some, written
from tests.systems.rag_tuner.worlds import tuned, world

LINE = {
    "question": "q1",
    "configuration": {"variant": "bm25", "k": 5},
    "quality": {"faithfulness": 0.9, "relevancy": None},
    "latency_ms": 41,
    "cost": 0.02,
}


def test_a_line_is_an_evaluation(tmp_path):
    other = {**LINE, "question": "q2", "failed": True, "violation": True, "conversation": "t"}
    log = read_log([written(tmp_path / "log", [LINE, other, {**LINE, "cost": 9}])], "handbook")
    assert (log.queries, log.groups) == (("q1", "q2"), ("", "t"))
    found = log.evaluate(Configuration("bm25", k=5), np.arange(2))
    assert found.measures == ("faithfulness", "relevancy")
    assert found.quality[0, 0] == 0.9
    assert np.isnan(found.quality[:, 1]).all()
    assert found.cost.tolist() == [0.02, 0.02]  # the first counts
    assert (found.failed.tolist(), found.violations.tolist()) == ([False, True],) * 2
    told = {"evaluations": 2, "asked_again": 1, "thinned_out": 0, "propensities": "none"}
    assert log.about == told


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"quality": {"faithfulness": 1.5, "relevancy": 1}}, "<= 1"),
        ({"quality": {"faithfulness": 0.5}}, "length >= 2"),
        ({"quality": {"recall": 0.5, "ndcg": 1}}, "measures are recall and ndcg"),
        ({"latency_ms": -1}, ">= 0"),
        ({"latency_ms": float("nan")}, "NaN is not a JSON number"),
        ({"cost": None}, "cost"),
        ({"propensity": 0}, "> 0"),
        ({"propensitiy": 0.5}, "propensitiy"),
        ({"configuration": {"variant": "splade", "k": 3}}, "variant is 'splade'"),
        ({"configuration": {"variant": "bm25", "k": 3, "rerank": "off"}}, "rerank"),
        ({"category": "howto"}, "use the same for all lines of a question"),
        ({"question": ""}, "length >= 1"),
        ({"of_query": {}}, "queries"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, wrong, says):
    lines = [LINE, {**LINE, **wrong}]
    with pytest.raises(DataError, match=r"log\.jsonl:2: ") as told:
        read_log([written(tmp_path / "log.jsonl", lines)], "x")
    assert says in str(told.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00", b"[1]\n", b"{" * 9_000])
def test_what_is_no_log(tmp_path, content):
    file = tmp_path / "log"
    file.write_bytes(content)
    with pytest.raises(DataError, match="write one JSON object"):
        read_log([file], "x")
    with pytest.raises(DataError, match="give a file"):
        read_log([tmp_path / "none"], "x")


def test_propensities_are_of_all_lines_of_a_configuration_or_of_none(tmp_path):
    lines = [{**LINE, "propensity": 0.5}, {**LINE, "question": "q2"}]
    with pytest.raises(DataError, match=r"1 of 2 lines of bm25 k=5 have a propensity"):
        read_log([written(tmp_path / "log", lines)], "x")


def test_who_chose_by_the_question_is_undone(tmp_path):
    """Easy questions were asked under one configuration and hard ones under the other."""
    recorded, (one, other) = world(queries=1_000, seed=7), some(2)
    lines, rng = [], np.random.default_rng(0)
    batches = {it: recorded.evaluate(it, np.arange(1_000)) for it in (one, other)}
    easy = batches[one].quality[:, 1] > np.median(batches[one].quality[:, 1])
    for place in range(1_000):
        likely = 0.8 if easy[place] else 0.2
        asked = one if rng.random() < likely else other
        quality = batches[asked].quality[place].tolist()
        lines.append(
            {
                "question": f"q{place}",
                "configuration": asked.parts(),
                "quality": {"recall": quality[0], "ndcg": quality[1]},
                "latency_ms": 1.0,
                "cost": 1.0,
                "propensity": likely if asked == one else 1 - likely,
            }
        )
    log = read_log([written(tmp_path / "log", lines)], "x")
    for it in (one, other):
        truth = batches[it].quality[:, 1].mean()
        naive = [row["quality"]["ndcg"] for row in lines if row["configuration"] == it.parts()]
        kept = log.seen(it, np.arange(len(log)))
        found = log.evaluate(it, kept).quality[:, 1]
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - truth) < 3 * error
        assert abs(np.mean(naive) - truth) > 4 * error
    assert log.about["thinned_out"] > 250
    again = read_log([tmp_path / "log"], "x")
    assert again.sha256 == log.sha256


def test_episodes_of_a_run_are_a_log(tmp_path):
    recorded, policy = world(queries=60), tuned()
    run, strategy = RunFolder(tmp_path / "run"), build_strategy("random", policy, queries=60)
    run.begin({}, "policy")
    slices = rotating(np.arange(60), 20, np.random.default_rng(0))
    for one in tune(strategy, recorded, policy, slices, evaluations=4, seed=0):
        run.append(one)
    log = read_log([tmp_path / "run" / "episodes.jsonl"], "world")
    assert log.about["evaluations"] == 80
    for line in run.episodes():
        one = Configuration.of(line["configuration"])
        known = log.seen(one, np.arange(len(log)))
        places = [int(log.queries[place]) for place in known]
        assert sorted(places) == sorted(line["queries"])
        true = recorded.evaluate(one, np.array(places))
        assert log.evaluate(one, known).quality == pytest.approx(true.quality)
