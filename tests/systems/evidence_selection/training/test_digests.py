"""Run digests: checkpoints of runs with another start or other questions are rejected."""

import re
import subprocess
import sys
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from lab.evidence_worlds import COLUMNS, made_up
from steersman.errors import DataError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.answer_model import ModelAnswer
from steersman_systems.evidence_selection.answered_terms import AnsweredTerms
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.reward import RewardTerms, completeness, containment
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.raft import RaftSettings, TreesOnTop, raft
from steersman_systems.evidence_selection.training.run_digest import (
    digest_of,
    digest_of_log,
    digest_of_scorer,
    digest_of_tasks,
)
from steersman_systems.evidence_selection.training.task import walks
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings
from tests.systems.evidence_selection.conftest import ROWS

RULE = StepRule(20, 1.0, 0.1)
START = NetworkScorer.linear(np.zeros(len(COLUMNS)))
OTHER = NetworkScorer.linear(np.eye(len(COLUMNS))[0])
MIXED = RewardTerms(finals=((0.7, containment), (0.3, completeness)))


def _evidence(rows=ROWS, terms=MIXED, picks=2):
    held = Collection.of_texts(rows)
    asked = [Question(f"q{n}", title, answers=("Hamilton",)) for n, (_, title, _) in
             enumerate(rows)]  # fmt: skip
    rules = Environment(Limits(picks=picks))
    return [EvidenceTask(held.pool(one, size=4), rules, terms) for one in asked]


def _changed_target(tasks):
    return [replace(tasks[0], target=tasks[0].bridge), *tasks[1:]]


@pytest.fixture
def learn():
    pytest.importorskip("lightgbm", reason="needs the extra evidence")
    tune = TreesOnTop(TreeSettings(trees=5, learning_rate=0.2))
    settings = RaftSettings(rounds=1, each=4, rule=RULE)

    def learned(tasks, start, folder, log=None):
        return raft(tasks, start, settings, tune=tune, folder=folder, log=log)

    return learned


def test_raft_refuses_checkpoints_of_another_start_or_of_other_contents(tmp_path, learn):
    tasks = made_up(10, seed=1)
    learn(tasks, START, tmp_path)
    learn(tasks, START, tmp_path)
    with pytest.raises(DataError, match="start was"):
        learn(tasks, OTHER, tmp_path)
    with pytest.raises(DataError, match="contents was"):
        learn(_changed_target(tasks), START, tmp_path)


def test_raft_refuses_checkpoints_of_a_log_of_other_actions(tmp_path, learn):
    tasks = made_up(10, seed=1)
    log = walks(tasks, START, RULE, each=4, seed=5)
    learn(tasks, START, tmp_path, log)
    learn(tasks, START, tmp_path, log)
    # The same questions with the same rewards: another selection came to them.
    swapped = [replace(one, taken=other.taken) for one, other in zip(log, log[1:] + log[:1],
               strict=True)]  # fmt: skip
    with pytest.raises(DataError, match="log was"):
        learn(tasks, START, tmp_path, swapped)
    with pytest.raises(DataError, match="log was"):
        learn(tasks, START, tmp_path)


def test_ppo_refuses_checkpoints_of_another_start_or_of_other_contents(tmp_path):
    pytest.importorskip("torch", reason="needs the extra rl")
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

    how, tasks = PpoSettings(rounds=1, each=2, rule=RULE), made_up(10, seed=1)
    ppo(tasks, START, how, folder=tmp_path)
    with pytest.raises(DataError, match="start was"):
        ppo(tasks, OTHER, how, folder=tmp_path)
    with pytest.raises(DataError, match="contents was"):
        ppo(_changed_target(tasks), START, how, folder=tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"terms": RewardTerms()},
        {"terms": replace(MIXED, information=0.1)},
        {"picks": 3},
        {"rows": [*ROWS[:-1], ("noise3", "Drums", "A drummer plays other drums.")]},
    ],
)
def test_questions_differ_by_candidates_rules_and_terms(other):
    assert digest_of_tasks(_evidence()) == digest_of_tasks(_evidence())
    assert digest_of_tasks(_evidence()) != digest_of_tasks(_evidence(**other))


class Says:
    """Model whose answers are constant; only its attributes identify it."""

    def __init__(self, text):
        self.text = text

    def __call__(self, question, passages):
        return ModelAnswer(self.text, shown=tuple((one.id, one.text) for one in passages))


def _answering(text):
    return RewardTerms(((1.0, AnsweredTerms(Says(text)).match),))


def test_rewards_differ_by_who_answers():
    one, other = (digest_of_tasks(_evidence(terms=_answering(said))) for said in ("yes", "no"))
    assert one != other
    assert one == digest_of_tasks(_evidence(terms=_answering("yes")))


def test_a_named_engine_is_told_by_its_name_and_not_by_its_connections():
    class Model:
        def __init__(self, name, size):
            self.name, self.size, self.connection = name, size, object()

    assert digest_of(Model("a", 1)) == digest_of(Model("a", 1))
    assert digest_of(Model("a", 1)) != digest_of(Model("b", 1))
    assert digest_of(Model("a", 1)) != digest_of(Model("a", 2))


def test_passages_that_were_not_retrieved_count_as_they_may_be_led_to():
    changed = [(name, title, text + " And more.") for name, title, text in ROWS]
    kept = {one.id for task in _evidence() for one in task.pool.candidates}
    few = [_evidence()[0], replace(_evidence()[0], pool=_evidence(changed)[0].pool)]
    beyond = replace(few[0].pool, collection=few[1].pool.collection)
    assert kept
    assert digest_of_tasks(few[:1]) != digest_of_tasks([replace(few[0], pool=beyond)])


def test_functions_differ_by_what_they_do_and_close_over():
    def adding(number):
        return lambda value: value + number

    assert digest_of(adding(1)) == digest_of(adding(1))
    assert digest_of(adding(1)) != digest_of(adding(2))
    assert digest_of(lambda value: value + 1) != digest_of(lambda value: value - 1)
    ring = []
    ring.append(Says(ring))
    assert digest_of(Says(ring[0])), "what leads back to itself ends"


def passing_all(tasks, known):
    return known


@pytest.mark.slow
def test_a_run_with_functions_of_its_own_goes_on_in_another_process(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.systems.evidence_selection.training.test_digests import *\n"
        "how = RaftSettings(rounds=1, each=4, rule=RULE, credit='action')\n"
        "tune = lambda examples, start, *, seed: start\n"
        "found = raft(made_up(10, seed=1), START, how, tune=tune, passing=passing_all,"
        " folder=Path(sys.argv[1]))\n"
        "print(found.before)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    said = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout != ""


@pytest.mark.slow
def test_digests_are_the_same_in_another_process():
    code = (
        "from tests.systems.evidence_selection.training.test_digests import *\n"
        "from tests.systems.evidence_selection.training.test_digests import _evidence\n"
        "print(digest_of_tasks(_evidence()), digest_of_scorer(SummedScorer((START, OTHER))),"
        " digest_of_log(walks(made_up(2, seed=1), START, RULE, each=2, seed=0)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    log = walks(made_up(2, seed=1), START, RULE, each=2, seed=0)
    scorer = digest_of_scorer(SummedScorer((START, OTHER)))
    assert found.stdout.split() == [digest_of_tasks(_evidence()), scorer, digest_of_log(log)]


def test_objects_without_attributes_are_told_apart_by_what_pickling_says():
    def one(*, at=1):
        return at

    def other(*, at=2):
        return at

    for first, second in (
        (range(3), range(5)),
        (datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)),
        (Decimal(1), Decimal(2)),
        (deque([1]), deque([2])),
        (re.compile("a"), re.compile("b")),
        (bytearray(b"a"), bytearray(b"b")),
        (1j, 2j),
        (np.add, np.subtract),
        (Path("a"), Path("b")),
        (one, other),
    ):
        assert digest_of(first) == digest_of(first)
        assert digest_of(first) != digest_of(second), first
    path, before = Path("a"), digest_of(Path("a"))
    assert {path: str(path)}
    assert digest_of(path) == before
