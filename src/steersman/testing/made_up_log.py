"""Synthetic log of contract checks, and comparison of policies."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy

    Floats = NDArray[np.float64]

TOLERANCE = 1e-9
ROWS = 60
_WEIGHTS = (1.0, 1.0, 0.5, 2.0, 0.0)


class Log:
    """A seeded log of (context, action, reward, weight), and what a decision needs besides."""

    def __init__(self, policy: ChoicePolicy, contexts: Sequence[Any] | None, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.names = policy.actions or ("first", "second", "third")
        self.joint = policy.reads == "action_features"
        own = None if contexts is None else deepcopy(list(contexts))
        self.contexts = self._contexts(policy) if own is None else own
        chosen = self.rng.integers(len(self.names), size=len(self.contexts))
        self.actions = [self.names[i] for i in chosen]
        self.rewards = self.rng.random(len(self.contexts)).round(3)
        self.weights = self.rng.choice(_WEIGHTS, size=len(self.contexts))

    def _contexts(self, policy: ChoicePolicy) -> list[Any]:
        if policy.reads == "key":
            return [f"key {i % 4}" for i in range(ROWS)]
        dim = getattr(policy, "context_dim", getattr(policy, "dim", 1))
        return list(self.rng.standard_normal((ROWS, dim)) / np.sqrt(dim))

    def request(self, row: int, eligible: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the keywords of ``decide`` and ``distribution`` for one request."""
        if not self.joint:
            return {"eligible": eligible}
        names = list(eligible or self.names)
        places = {name: self.names.index(name) for name in names}
        rows = {name: self.contexts[(row + i) % ROWS] for name, i in places.items()}
        return {"eligible": names, "features": rows}

    def teach(
        self, policy: ChoicePolicy, rows: slice = slice(None), *, bucket: int | None = None
    ) -> None:
        """Let a policy learn some rows one by one, all in one time bucket if there is one."""
        for x, action, reward, weight in zip(
            *(self.contexts[rows], self.actions[rows], self.rewards[rows], self.weights[rows]),
            strict=True,
        ):
            policy.learn(x, action, float(reward), weight=float(weight), bucket=bucket)

    def bucket(self, policy: ChoicePolicy) -> int | None:
        """Return a time bucket in which nothing fades, where a policy forgets at all."""
        return None if getattr(policy, "forget", 1.0) == 1.0 else 1000

    def distributions(self, policy: ChoicePolicy) -> Floats:
        """Return the distributions of the first ten contexts."""
        return np.array(
            [policy.distribution(x, **self.request(i)) for i, x in enumerate(self.contexts[:10])]
        )


def copied(policy: ChoicePolicy) -> ChoicePolicy:
    """Return what a policy's state makes."""
    return type(policy).from_state(policy.state())


def state_bytes(policy: ChoicePolicy) -> bytes:
    """Return a policy's whole state."""
    return b"".join(name.encode() + a.tobytes() for name, a in sorted(policy.state().items()))


def assert_close(
    one: ChoicePolicy, other: ChoicePolicy, log: Log, message: str, *, but: str = "meta"
) -> None:
    """Raise AssertionError unless two policies learned and decide the same, up to rounding.

    Args:
        one: a policy.
        other: another.
        log: whose contexts they decide on.
        message: what is wrong if they differ.
        but: an array of their states that may differ.
    """
    assert one.updates == other.updates, f"{message}: {one.updates} and {other.updates} updates"
    close = np.allclose(log.distributions(one), log.distributions(other), atol=1e-6)
    if one.continuous:
        assert close, message
    mine, theirs = one.state(), other.state()
    for name, array in mine.items():
        comparable = name not in ("meta", but) and one.reads != "key"
        if comparable and array.shape == theirs[name].shape:
            scale = max(1.0, float(np.abs(array).max(initial=0.0)))
            worst = float(np.abs(array - theirs[name]).max(initial=0.0)) / scale
            assert worst < TOLERANCE, f"{message}: {name} by {worst:.1e}"
