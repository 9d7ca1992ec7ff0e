"""Every policy that ships passes the checks that ship."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.points.algorithms import BUILT_IN
from steersman.policies import (
    BetaThompson,
    BoundedLinUCB,
    EpsilonGreedy,
    FactoredTS,
    Fixed,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
    Rules,
    SequenceLinear,
    SequenceTrees,
)
from steersman.testing import check_policy

NAMES = ["micro", "planner", "deep"]
CONTEXTS = [{"confidence": float(v)} for v in np.linspace(0.0, 1.0, 60)]
POLICIES = {
    "lin_ucb": LinUCB(NAMES, 5),
    "lin_ucb_floor": LinUCB(NAMES, 5, floor=0.2),
    "lin_ucb_forget": LinUCB(NAMES, 5, floor=0.2, forget=0.97),
    "bounded": BoundedLinUCB(NAMES, 5, floor=0.1),
    "kernel": KernelUCB(NAMES, 4, random_features=20),
    "lin_ts": LinTS(NAMES, 5),
    "lin_ts_forget": LinTS(NAMES, 5, floor=0.05, forget=0.9),
    "beta": BetaThompson(NAMES),
    "beta_floor": BetaThompson(NAMES, prior=(0.5, 0.5), floor=0.1),
    "greedy_plain": EpsilonGreedy(NAMES),
    "greedy_contextual": EpsilonGreedy(NAMES, 5, epsilon=0.5, decay=0.9),
    "squarecb": JointSquareCB(NAMES, 6, floor=0.1),
    "squarecb_open": JointSquareCB((), 6),
    "joint_ts": JointLinTS(NAMES, 6),
    "joint_ts_open": JointLinTS((), 6, floor=0.1, forget=0.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_contract(name):
    check_policy(POLICIES[name])


UNLEARNING = {
    "fixed": Fixed(NAMES, "planner", floor=0.1),
    "rules": Rules(NAMES, [("confidence < 0.4", "deep"), ("True", "micro")], floor=0.1),
}


@pytest.mark.parametrize("name", UNLEARNING)
def test_contract_of_policies_that_do_not_learn(name):
    check_policy(UNLEARNING[name], contexts=CONTEXTS)


def test_no_class_is_left_out():
    """Selections have contracts of their own: `test_sequential.py`."""
    checked = {policy.algorithm for policy in (*POLICIES.values(), *UNLEARNING.values())}
    elsewhere = {"factored_ts"}  # test_factored.py
    selecting = {name for name in BUILT_IN if name.startswith("sequence_")}
    assert checked | elsewhere | selecting == set(BUILT_IN)


SHOWN = {
    **POLICIES,
    **UNLEARNING,
    "factored": FactoredTS(parts={"k": [1, 2]}),
    "sequence": SequenceLinear(features=["score"], max_steps=2),
    "trees": SequenceTrees(features=["score"], max_steps=2),
}


@pytest.mark.parametrize("name", SHOWN)
def test_repr_shows_the_class_and_every_parameter(name):
    policy = SHOWN[name]
    text = repr(policy)
    assert text.startswith(f"{type(policy).__name__}(actions=[")
    for parameter in inspect.signature(type(policy)).parameters:
        assert f"{parameter}=" in text


def test_repr_covers_every_algorithm_and_shortens_long_values():
    assert {policy.algorithm for policy in SHOWN.values()} == set(BUILT_IN)
    wanted = "LinUCB(actions=['a', 'b'], floor=0.0, dim=2, alpha=1.0, ridge=1.0, forget=1.0)"
    assert repr(LinUCB(["a", "b"], dim=2)) == wanted
    assert len(repr(LinUCB([f"action {i}" for i in range(1000)], dim=2))) < 200


class Restricted(LinUCB):
    """One that does something wrong only where fewer actions are allowed."""

    algorithm = "restricted"
    wrong = "propensity"

    def decide(self, x, *, rng, eligible=None, features=None):
        if eligible is None:
            return super().decide(x, rng=rng)
        if self.wrong == "eligible":
            return super().decide(x, rng=rng)
        choice = super().decide(x, rng=rng, eligible=eligible)
        if self.wrong == "uniforms":
            rng.random()
        if self.wrong == "propensity":
            choice = replace(choice, propensity=choice.propensity / 2)
        if self.wrong == "action":
            choice = replace(choice, action=next(n for n in self.actions if n not in eligible))
        if self.wrong == "u":
            choice = replace(choice, u=(choice.u + 0.5) % 1.0)
        return choice


@pytest.mark.parametrize("wrong", ["propensity", "eligible", "uniforms", "action", "u"])
def test_what_is_wrong_where_fewer_are_allowed_is_caught(wrong):
    kind = type("Wrong", (Restricted,), {"wrong": wrong})
    with pytest.raises(AssertionError):
        check_policy(kind(NAMES, 3, floor=0.9))


def test_bad_contexts_are_tried_in_deciding_and_in_batches():
    class DecidesAnything(LinUCB):
        algorithm = "decides_anything"

        def decide(self, x, **keywords):
            if isinstance(x, np.ndarray) and x.shape == (3,):
                x = np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
            return super().decide(x, **keywords)

    class LearnsHalf(LinUCB):
        algorithm = "learns_half"

        def learn_batch(self, xs, actions, rewards, **keywords):
            for row in zip(xs, actions, rewards, strict=True):
                self.learn(*row)

    for kind in (DecidesAnything, LearnsHalf):
        with pytest.raises(AssertionError, match="bad input"):
            check_policy(kind(NAMES, 3, floor=0.1))


@pytest.mark.slow
def test_the_checks_do_not_cry_wolf():
    check_policy(Fixed(NAMES, "planner"))
    check_policy(LinUCB([f"a{place}" for place in range(30)], 3, floor=0.6))
    for seed in range(12):
        check_policy(LinUCB(NAMES, 3, forget=0.9), seed=seed)


@pytest.mark.parametrize("asked", [{"policy": None}, {"policy": "x"}, {"contexts": [[0.0]] * 9}])
def test_what_is_checked_is_a_policy_on_so_many_contexts(asked):
    with pytest.raises(InputError, match="check_policy"):
        check_policy(**({"policy": LinUCB(NAMES, 1)} | asked))


def test_a_policy_that_lies_about_its_propensity_is_caught():
    class Liar(LinUCB):
        algorithm = "liar"

        def decide(self, x, **keywords):
            choice = super().decide(x, **keywords)
            return type(choice)(
                choice.action, 0.5, choice.distribution, choice.scores, choice.eligible, choice.u
            )

    with pytest.raises(AssertionError, match="propensity differs"):
        check_policy(Liar(NAMES, 3, floor=0.5))


class RevisesAsNew(LinUCB):
    """Forgets that an update which is corrected has aged."""

    algorithm = "revises_as_new"

    def _revise(self, x, index, change, weight, bucket):
        self._arms.revise(index, self._vector(x), change, weight)


class KeepsAll(LinUCB):
    algorithm = "keeps_all"

    def _withdraw(self, x, index, reward, weight, bucket):
        pass


class DecidesOnce(LinUCB):
    algorithm = "decides_once"

    def decide_many(self, contexts, *, rng):
        return [self.decide(contexts[0], rng=rng) for _ in contexts]


class MergesItself(LinTS):
    algorithm = "merges_itself"

    def merge(self, deltas):
        self._emitted.clear()
        super().merge(deltas)


class MergesWithoutAge(LinUCB):
    algorithm = "merges_without_age"

    def _sum(self, meta, sums, other_meta, other):
        clock = max(meta["clock"], other_meta["clock"])
        return {**meta, "clock": clock}, {name: own + other[name] for name, own in sums.items()}


class ForgetsReserved(LinUCB):
    algorithm = "forgets_reserved"

    def _meta(self):
        return {**super()._meta(), "reserved": {}}


class LearnsBatchesUnweighted(LinUCB):
    algorithm = "learns_batches_unweighted"

    def learn_batch(self, xs, actions, rewards, *, weights=None, buckets=None):
        whole = None if weights is None else np.ceil(weights)
        super().learn_batch(xs, actions, rewards, weights=whole, buckets=buckets)


class SinceTheBeginning(LinUCB):
    algorithm = "since_the_beginning"

    def delta(self, since=None, *, id=None):  # noqa: A002
        return super().delta(id=id)


class OneId(LinUCB):
    algorithm = "one_id"

    def delta(self, since=None, *, id=None):  # noqa: A002
        return super().delta(since, id=id or "mine")


class ForgetsMerged(LinUCB):
    algorithm = "forgets_merged"

    def _meta(self):
        return {**super()._meta(), "merged": []}


class ForgetsTheFloor(LinUCB):
    """Where the first feature is negative and large."""

    algorithm = "forgets_the_floor"

    def _mixed(self, mask, distribution):
        mixed = super()._mixed(mask, distribution)
        return distribution if self.below else mixed

    def _score(self, x, mask, features):
        self.below = x[0] < -0.5
        return super()._score(x, mask, features)


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        (LearnsBatchesUnweighted, {}, "a batch differs from learning its rows"),
        (SinceTheBeginning, {}, "a delta since a state must hold exactly"),
        (OneId, {}, "two deltas without an explicit id must merge"),
        (ForgetsMerged, {}, "must keep the ids of merged deltas"),
        (ForgetsTheFloor, {"floor": 0.3}, "an action is below the floor"),
        (RevisesAsNew, {"forget": 0.9}, "must keep its old time weight"),
        (KeepsAll, {}, "a withdrawn update must leave no trace"),
        (DecidesOnce, {}, "deciding many contexts at once"),
        (MergesItself, {}, "must not merge its own delta"),
        (MergesWithoutAge, {"forget": 0.9}, "must weight old rows as one learner does"),
        (ForgetsReserved, {}, "must keep the reserved share"),
    ],
)
def test_a_policy_with_one_thing_broken_is_caught(kind, more, said):
    with pytest.raises(AssertionError, match=said):
        check_policy(kind(NAMES, 4, **{"floor": 0.1, **more}))
