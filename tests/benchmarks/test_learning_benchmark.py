"""The learning benchmark takes any routing set that is loaded, and knows which goal is whose."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.report import Options
from steersman.systems.assistant.routers import RouterWorld


def routing_set(name: str, *, priced: bool) -> RouterWorld:
    """Return 300 short texts whose first word tells which of two choices is right."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 300)
    texts = tuple(f"{('sum', 'rhyme')[kind]} number {i % 7}" for i, kind in enumerate(kinds))
    rewards = np.eye(2)[kinds]
    return RouterWorld(
        name=name,
        texts=texts,
        contexts=tuple({"text": text} for text in texts),
        rewards=rewards,
        names=("calculator", "poet"),
        train=np.arange(300) < 100,
        costs_usd=np.zeros((300, 2)) if priced else None,
    )


@pytest.mark.parametrize(
    ("name", "priced", "unit", "holds"),
    [
        ("routerbench_subset", True, "score - 20 USD", True),
        ("llmrouter_dc", False, "score", None),
    ],
)
def test_a_routing_set_is_named_with_its_unit_and_its_goal(
    monkeypatch: pytest.MonkeyPatch, name: str, unit: str, *, priced: bool, holds: bool | None
) -> None:
    monkeypatch.setattr(learning, "_router", lambda name, _: routing_set(name, priced=priced))
    (figure,) = learning.run(Options(sets=(name,), quick=True))
    assert figure.name.startswith(f"{name}: ")
    assert (figure.unit, figure.holds) == (unit, holds)
    assert figure.low is not None
    assert figure.low > 0.2  # one fixed choice is right half of the time
