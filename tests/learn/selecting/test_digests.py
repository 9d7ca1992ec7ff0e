"""Checkpoints of a run that began otherwise, or learned from other questions, are refused."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import DataError
from steersman.learn.selecting import RaftSettings, TreeSettings, TreesOnTop, raft, walks
from steersman.learn.selecting.digests import digest_of_log, digest_of_scorer, digest_of_tasks
from steersman.policies import NetworkScorer, SummedScorer
from steersman.policies.sequence import StepRule
from steersman.systems.leadr import Collection, Environment, Limits, Question
from steersman.systems.leadr.made_up import COLUMNS, made_up
from steersman.systems.leadr.reward import RewardTerms, completeness, containment
from steersman.systems.leadr.tasks import EvidenceTask
from tests.systems.leadr.conftest import ROWS

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
    from steersman.learn.selecting.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

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


@pytest.mark.slow
def test_digests_are_the_same_in_another_process():
    code = (
        "from tests.learn.selecting.test_digests import *\n"
        "from tests.learn.selecting.test_digests import _evidence\n"
        "print(digest_of_tasks(_evidence()), digest_of_scorer(SummedScorer((START, OTHER))),"
        " digest_of_log(walks(made_up(2, seed=1), START, RULE, each=2, seed=0)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    log = walks(made_up(2, seed=1), START, RULE, each=2, seed=0)
    scorer = digest_of_scorer(SummedScorer((START, OTHER)))
    assert found.stdout.split() == [digest_of_tasks(_evidence()), scorer, digest_of_log(log)]
