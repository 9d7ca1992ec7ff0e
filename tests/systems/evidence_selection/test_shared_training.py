"""What contenders begin with is learned once, and they select as if each had learned it alone."""

import copy

import numpy as np
import pytest

from steersman_systems.evidence_selection import shared_models as shared_training
from steersman_systems.evidence_selection.contenders import CLONE, Cloned, contenders
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.raft_training import raft
from steersman_systems.evidence_selection.shared_models import SharedTraining
from steersman_systems.evidence_selection.tasks import EvidenceTask
from tests.systems.evidence_selection.bands import bands

pytest.importorskip("lightgbm", reason="the extra evidence")

FULL = Limits(picks=2, expanding="always", may_stop=False)


@pytest.fixture(scope="module")
def prepared():
    return bands()


def picked(selector, pools):
    return [selector.select(pool, rng=np.random.default_rng(0)).picked for pool in pools]


def test_one_clone_for_all_who_begin_with_it(prepared):
    shared = SharedTraining()
    by = {one.name: one for one in contenders([CLONE, "pointwise"], limits=FULL, shared=shared)}
    known = prepared.pools[1:]
    clone = by[CLONE].fitted(list(known))
    assert clone.scorer is by["pointwise"].fitted(list(known)).scorer
    assert clone.scorer is not by[CLONE].fitted(known[:-1]).scorer, "other questions, another clone"
    alone = Cloned(CLONE, FULL).fitted(known)
    assert alone.scorer is not clone.scorer
    assert picked(alone, prepared.pools) == picked(clone, prepared.pools)


def test_other_limits_settings_or_seeds_are_learned_apart(prepared):
    shared = SharedTraining()
    first = Cloned(CLONE, FULL, shared=shared).fitted(prepared.pools)
    for other in (
        Cloned(CLONE, Limits(picks=2, expanding="never", may_stop=False), shared=shared),
        Cloned(CLONE, FULL, seed=1, shared=shared),
    ):
        assert other.fitted(prepared.pools).scorer is not first.scorer


@pytest.mark.slow
def test_raft_is_done_once_upon_one_clone(prepared, monkeypatch):
    done = []

    def counted(tasks, scorer, seed):
        done.append(seed)
        return raft(tasks, scorer, seed)

    monkeypatch.setattr(shared_training, "raft", counted)
    shared = SharedTraining()
    tasks = [EvidenceTask(pool, Environment(FULL)) for pool in prepared.pools]
    clone = Cloned(CLONE, FULL, shared=shared).fitted(prepared.pools).scorer
    assert shared.raft(tasks, clone, 0) is shared.raft(tasks, clone, 0)
    shared.raft(tasks, clone, 1)
    assert done == [0, 1]


def test_it_travels_without_what_was_learned(prepared):
    shared = SharedTraining()
    here = Cloned(CLONE, FULL, shared=shared).fitted(prepared.pools).scorer
    there = copy.copy(shared)  # as pickle sends it
    assert Cloned(CLONE, FULL, shared=there).fitted(prepared.pools).scorer is not here
