"""Mixed actions: one model of the parts decides among all configurations."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steersman.errors import ActionError, InputError, StateError
from steersman.points.policy_factory import build, load_policy
from steersman.policies import FactoredTS, Fixed, Rules
from steersman.policies.part_features import part_features
from steersman.policies.space import key_of
from steersman.policies.undo import withdraw
from steersman.spec.actions import Mixed
from steersman.spec.policy import FactoredTSPolicy, FixedPolicy, RulesPolicy
from steersman.testing import check_policy

DECLARED = {
    "k": {"type": "integer", "low": 1, "high": 8, "scale": "log"},
    "rerank": {"type": "boolean"},
    "variant": {"type": "categorical", "values": ["bm25", "dense", "hybrid"]},
    "weight": {"type": "real", "low": 0.0, "high": 1.0, "points": 5},
}
MIXED = Mixed.model_validate({"kind": "mixed", "parts": DECLARED})
PARTS = {name: list(part.grid) for name, part in MIXED.parts.items()}
SPACE = {"parts": PARTS, "scales": {"k": "log", "weight": "linear"}}
SMALL = {"parts": {name: PARTS[name] for name in ("rerank", "variant")}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"floor": 0.1},
        {"floor": 0.1, "pairs": False, "forget": 0.9},
        {"dim": 3, "floor": 0.05},
        {"dim": 3, "forget": 0.97},
    ],
)
def test_contract(more):
    check_policy(FactoredTS(**SMALL, **more))


def test_its_configurations_are_those_that_are_declared():
    barred = {"barred": [{"variant": "dense", "weight": 0}, {"k": 3}]}
    for more in ({}, barred):
        mixed = Mixed.model_validate({"kind": "mixed", "parts": DECLARED, **more})
        declared = FactoredTSPolicy(algorithm="factored_ts")
        policy = build(declared, mixed.names, dim=1, floor=0.0, mixed=mixed)
        assert policy.actions == mixed.names


def test_contract_where_some_are_barred():
    check_policy(FactoredTS(**SMALL, barred=[{"variant": "dense"}], floor=0.2))


def test_the_model_is_the_regression_written_out():
    rng = np.random.default_rng(0)
    policy = FactoredTS(**SPACE, dim=2, noise_var=0.05)
    rows, alone = part_features(key_of(**SPACE, barred=()), pairs=True, prior_var=0.01)
    design, rewards = [], []
    for _ in range(50):
        x, place = rng.normal(size=2), int(rng.integers(len(policy.actions)))
        own = rows[place, 1 : 1 + alone]
        design.append(np.concatenate([rows[place], x[0] * own, x[1] * own]))
        rewards.append(float(rng.random()))
        policy.learn(x, policy.actions[place], rewards[-1])
    z, r = np.array(design), np.array(rewards)
    theta = np.linalg.solve(z.T @ z / 0.05 + np.eye(z.shape[1]), z.T @ r / 0.05)
    x = np.array([0.3, -0.2])
    own = rows[:, 1 : 1 + alone]
    wanted = np.concatenate([rows, 0.3 * own, -0.2 * own], axis=1) @ theta
    choice = policy.decide(x, rng=rng)
    assert np.allclose(choice.scores, wanted, atol=1e-9)


def test_frequencies_are_those_of_the_posterior():
    """Against draws of another generator: four thousand of them."""
    policy = FactoredTS(**SMALL, draws=1000, seed=3)
    for place, name in enumerate(policy.actions * 3):
        policy.learn(None, name, 0.3 + 0.05 * (place % 6))
    rows, _ = part_features(key_of(**SMALL, scales={}, barred=()), pairs=True, prior_var=0.01)
    arms = policy._arms
    rng = np.random.default_rng(99)
    drawn = rng.multivariate_normal(arms.theta[0], arms.covariance(0), size=4000)
    shares = np.bincount((drawn @ rows.T).argmax(axis=1), minlength=6) / 4000
    assert np.abs(policy.distribution(None) - shares).max() < 0.06


def test_it_finds_a_configuration_that_was_never_tried():
    """What is best of each part was seen, never together."""
    policy = FactoredTS(**SPACE, noise_var=0.01, floor=0.02)
    rng = np.random.default_rng(1)
    tried = set()
    for _ in range(300):
        values = json.loads(policy.actions[rng.integers(len(policy.actions))])
        if values["variant"] == "hybrid" and values["k"] >= 4:
            continue
        tried.add(json.dumps(values))
        worth = 0.1 * (values["variant"] == "hybrid") + 0.1 * np.log2(values["k"])
        policy.learn(None, MIXED.name_of(values), 0.2 + worth + rng.normal(0, 0.02))
    likely = json.loads(policy.actions[int(policy.decide(None, rng=rng).scores.argmax())])
    assert (likely["variant"], likely["k"] >= 6) == ("hybrid", True)
    assert json.dumps(likely) not in tried


def test_what_a_part_does_may_depend_on_the_context():
    policy = FactoredTS(**SMALL, dim=2, noise_var=0.01, prior_var=0.1)
    for x, good in (([1.0, 0.0], "bm25"), ([0.0, 1.0], "dense")):
        for name in policy.actions * 5:
            policy.learn(x, name, float(json.loads(name)["variant"] == good))
    for x, good in (([1.0, 0.0], "bm25"), ([0.0, 1.0], "dense")):
        mass = policy.distribution(x)
        having = sum(p for p, name in zip(mass, policy.actions, strict=True) if good in name)
        assert having > 0.95


@pytest.mark.parametrize("prior_var", [0.01, 1.0, 1e3, 1e9])
def test_what_can_be_decided_in_can_be_learned_from(prior_var):
    policy = FactoredTS(**SMALL, dim=2, prior_var=prior_var, noise_var=1.0)
    own = policy._rows[:, 1 : 1 + policy._alone]
    alone = np.sqrt((own**2).sum(axis=1).max())
    most = min(1e6, np.sqrt(1e12 - (policy._rows**2).sum(axis=1).max()) / alone)
    at_most = np.array([0.6, 0.8]) * most * (1.0 - 1e-8)
    policy.distribution(at_most)
    for name in policy.actions:
        policy.learn(at_most, name, 0.5)
    before = policy.state()["moment"].tobytes()
    for refused in (
        lambda: policy.decide(at_most * 1.01, rng=np.random.default_rng(0)),
        lambda: policy.learn(at_most * 1.01, policy.actions[0], 0.5),
        lambda: policy.learn_batch([[0.0, 0.0], at_most * 1.01], policy.actions[:2], [0.5] * 2),
    ):
        with pytest.raises(InputError, match=r"the context is too large: x\[1\] is"):
            refused()
    assert policy.state()["moment"].tobytes() == before


def test_some_parts_name_all_configurations_that_have_them():
    policy = FactoredTS(**SPACE, floor=0.1)
    mass = policy.distribution(None, eligible=['{"variant":"bm25","rerank":false}', '{"k":8}'])
    allowed = [
        ("bm25" in name and '"rerank":false' in name) or json.loads(name)["k"] == 8
        for name in policy.actions
    ]
    assert ((mass > 0) == allowed).all()
    assert mass[allowed].min() >= 0.1 / sum(allowed) - 1e-12
    one = MIXED.name_of({"k": 3, "rerank": True, "variant": "dense", "weight": 0.25})
    assert policy.distribution(None, eligible=[one]).max() == 1.0
    # 1 is 1.0, and neither is true.
    assert policy.distribution(None, eligible=['{"weight":1}']).sum() == pytest.approx(1.0)


def _fixed():
    return Fixed(MIXED.names, MIXED.names[0])


def _factored():
    return FactoredTS(**SPACE)


@pytest.mark.parametrize(
    ("policy", "name", "message"),
    [
        (_fixed, "hybrid", "allowed: JSON of some of the parts k, rerank, variant, weight"),
        (_fixed, "{", "unknown action"),
        (_fixed, "{}", "unknown action"),
        (_fixed, '{"reranks":true}', "unknown part 'reranks'"),
        (_fixed, '{"rerank":1}', "rerank is 1; allowed: false, true"),
        (_fixed, '{"k":true}', "k is True"),
        (_fixed, '{"k":9}', "k is 9; allowed: 1.0"),
        (_fixed, '{"weight":0.3}', "weight is 0.3"),
        (_factored, '{"k": 1' + "0" * 400 + "}", "allowed"),
        (_factored, '{"k": -1e999}', "allowed"),
        (_factored, '{"k": NaN}', "allowed"),
        (_factored, '{"k": ' + "[" * 5000 + "}", "allowed"),
    ],
)
def test_distribution_with_bad_configuration_name_says_what_is_allowed(policy, name, message):
    with pytest.raises(ActionError, match=message):
        policy().distribution(None, eligible=[name])


def test_what_is_barred_cannot_be_chosen_nor_named():
    declared = {"kind": "mixed", "parts": DECLARED, "barred": [{"variant": "dense"}]}
    barred = Mixed.model_validate(declared)
    declared = FactoredTSPolicy(algorithm="factored_ts")
    policy = build(declared, barred.names, dim=4, floor=0.3, mixed=barred)
    assert not any("dense" in name for name in policy.actions)
    with pytest.raises(ActionError, match="variant is 'dense'"):
        policy.distribution(None, eligible=['{"variant":"dense"}'])


def test_fixed_and_rules_choose_configurations():
    one = {"k": 2, "rerank": False, "variant": "bm25", "weight": 0}
    other = {**one, "variant": "hybrid", "weight": 0.5}
    declared = FixedPolicy(algorithm="fixed", action=one)
    fixed = build(declared, MIXED.names, dim=1, floor=0.0, mixed=MIXED)
    assert isinstance(fixed, Fixed)
    assert fixed.action == '{"k":2,"rerank":false,"variant":"bm25","weight":0.0}'
    ruled = RulesPolicy.model_validate(
        {"algorithm": "rules", "rules": [{"when": "hard", "action": other}], "otherwise": one}
    )
    rules = build(ruled, MIXED.names, dim=1, floor=0.0, mixed=MIXED)
    assert isinstance(rules, Rules)
    drawn = rules.decide({"hard": True}, rng=np.random.default_rng(0))
    assert (drawn.action, drawn.propensity) == (MIXED.name_of(other), 1.0)


@pytest.mark.parametrize(("dim", "forget"), [(None, 1.0), (2, 0.9)])
def test_what_is_withdrawn_was_never_learned(dim, forget):
    policy = FactoredTS(**SMALL, dim=dim, forget=forget)
    x = None if dim is None else [0.3, -0.4]
    for place, name in enumerate(policy.actions):
        policy.learn(x, name, place / 6, bucket=3)
    before = policy.decide(x, rng=np.random.default_rng(0)).scores
    policy.learn(x, policy.actions[2], 0.9, bucket=3)
    assert not np.allclose(policy.decide(x, rng=np.random.default_rng(0)).scores, before)
    withdraw(policy, x, policy.actions[2], 0.9, bucket=3)
    assert policy.updates == 6
    assert np.allclose(policy.decide(x, rng=np.random.default_rng(0)).scores, before, atol=1e-9)


def test_states_say_the_space_and_not_every_name():
    policy = FactoredTS(**SPACE, dim=2, floor=0.1)
    policy.learn([0.1, 0.2], policy.actions[7], 0.5)
    state = policy.state()
    assert state["meta"].nbytes < 1000
    twin = load_policy(state)
    assert twin.actions == policy.actions
    assert (twin.distribution([1.0, 0.0]) == policy.distribution([1.0, 0.0])).all()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"k":[1,2,', '"k":[1,2,9,'),
        ('"k":[1,2,', '"k":[2,2,'),
        ('"k":[1,2,3,4,5,6,7,8]', '"k":8'),
        ('"k":[1,2,3,4,5,6,7,8]', '"k":[[1],[2]]'),
        ('"scales":{"k":"log"', '"scales":{"k":"lag"'),
        ('"scales":{"k"', '"scales":{"j"'),
        ('"barred":[]', '"barred":[{"k":9}]'),
        ('"barred":[]', '"barred":7'),
        ('"dim":2', '"dim":1000'),
        ('"actions":[]', '"actions":["x"]'),
    ],
)
def test_states_that_do_not_fit_their_space(before, after):
    state = FactoredTS(**SPACE, dim=2).state()
    text = state["meta"].tobytes().decode()
    assert before in text
    changed = np.frombuffer(text.replace(before, after).encode(), np.uint8)
    with pytest.raises(StateError):
        load_policy({**state, "meta": changed})


WIDE = {name: list(range(9)) for name in "abcd"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"parts": {"v": [f"v{n}" for n in range(600)]}}, "600 features; allowed: 512"),
        ({**SPACE, "dim": 500}, r"too many weights: .*; allowed: up to 1,024"),
        ({"parts": {}}, "0 parts with 1 combinations"),
        (
            {"parts": {name: list(range(200)) for name in "ab"}},
            "2 parts with 40,000 combinations",
        ),
        (
            {**SMALL, "barred": [{"rerank": False}, {"rerank": True}]},
            "all configurations are barred",
        ),
        (
            {"actions": ["a"], **SPACE},
            "do not match the 240 configurations of these parts",
        ),
        ({"parts": WIDE, "draws": 1000}, "fewer draws"),
        ({"parts": WIDE, "dim": 64}, "smaller"),
    ],
)
def test_factored_ts_with_bad_space_says_what_is_allowed(keywords, message):
    with pytest.raises(InputError, match=message):
        FactoredTS(**keywords)


def test_factored_ts_with_changed_actions_is_refused():
    with pytest.raises(InputError, match="cannot add 'x'"):
        FactoredTS(**SPACE).add_action("x")
    with pytest.raises(InputError, match="cannot remove 'x'"):
        FactoredTS(**SPACE).remove_action("x")


def test_a_thousand_barred_configurations_are_barred_one_by_one():
    mixed = Mixed.model_validate({"kind": "mixed", "parts": DECLARED})
    barred = [json.loads(name) for name in mixed.names[::2]]
    fewer = Mixed.model_validate({"kind": "mixed", "parts": DECLARED, "barred": barred})
    assert fewer.names == mixed.names[1::2]
    assert FactoredTS(**SPACE, barred=barred).actions == fewer.names
