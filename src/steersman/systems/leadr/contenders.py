"""Who takes part in an evaluation: baselines, what is trained for it, and who cannot and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.learn.selecting import CloneSettings, clone
from steersman.systems.leadr.baselines import LAMBDAS, Mmr, Oracle, Pointwise, TopK
from steersman.systems.leadr.environment import Environment, Limits
from steersman.systems.leadr.evaluating import Fixed
from steersman.systems.leadr.experts import GoldExpert
from steersman.systems.leadr.linear_clone import linear_clone
from steersman.systems.leadr.selectors import ScoredSelector
from steersman.systems.leadr.tasks import EvidenceTask

if TYPE_CHECKING:
    from steersman.systems.leadr.environment import Selector
    from steersman.systems.leadr.evaluating import Contender
    from steersman.systems.leadr.pool import Pool

Train = Callable[[Sequence[EvidenceTask], Any, int], Any]
"""Better scorer out of (tasks of training questions, the clone it starts from, seed)."""

BASELINE = "top-k, fused"
CLONE, STOPPING = "+BC", "+BC, may stop"
RAFT, PPO = "+BC+RAFT", "+BC+RAFT+PPO"
_LEARNERS = "steersman.systems.leadr.improving"
"""The module whose functions of these names take part as soon as they are there."""
_IMPROVING = {RAFT: "raft", PPO: "raft_then_ppo"}


@dataclass(frozen=True, slots=True)
class Cloned:
    """A clone of who knows the gold passages, trained on each fold's training questions.

    Args:
        name: in reports.
        limits: of a selection.
        settings: of the training.
        seed: of the training.
        improve: makes a better scorer of the clone; None: the clone itself takes part.
        pointwise: whether it sees each candidate as it stands at first, and no step.

    No doctest: it trains; ``tests/systems/leadr/test_contenders.py`` shows it.
    """

    name: str
    limits: Limits = field(default_factory=lambda: Limits(expanding="always", may_stop=False))
    settings: CloneSettings = field(default_factory=CloneSettings)
    seed: int = 0
    improve: Train | None = None
    pointwise: bool = False

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector that learned from some questions.

        Args:
            pools: of the questions it may learn from.

        Raises:
            InputError: none of them has its gold in reach.
            DataError: an extra is not installed.
        """
        environment = Environment(self.limits)
        tasks = [EvidenceTask(pool, environment) for pool in pools if pool.question.gold]
        scorer = clone(tasks, GoldExpert(), self.settings, seed=self.seed)
        if self.pointwise:
            return Pointwise(scorer, environment, name=self.name)
        if self.improve is not None:
            scorer = self.improve(tasks, scorer, self.seed)
        return ScoredSelector(self.name, scorer, environment)


@dataclass(frozen=True, slots=True)
class LinearlyCloned:
    """A clone that is a weighted sum of features, where trees cannot be grown.

    Args:
        name: in reports.
        limits: of a selection.
        seed: of the training.

    No doctest: it trains; ``tests/systems/leadr/test_linear_clone.py`` shows it.
    """

    name: str
    limits: Limits = field(default_factory=lambda: Limits(expanding="always", may_stop=False))
    seed: int = 0

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector that learned from some questions.

        Args:
            pools: of the questions it may learn from.

        Raises:
            InputError: none of them has its gold in reach.
        """
        environment = Environment(self.limits)
        tasks = [EvidenceTask(pool, environment) for pool in pools if pool.question.gold]
        scorer = linear_clone(tasks, GoldExpert(), seed=self.seed)
        return ScoredSelector(self.name, scorer, environment)


def contenders(
    wanted: str | Sequence[str] = "all", *, limits: Limits | None = None, seed: int = 0
) -> tuple[list[Contender], dict[str, str]]:
    """Return the contenders of an evaluation, and who is wanted and cannot take part.

    Args:
        wanted: ``all``, or names (as reports have them).
        limits: picks and tokens of everybody; None for `Limits`' defaults.
        seed: of what is trained.

    Returns:
        Contenders, the baseline first; name -> why it is absent.

    Raises:
        InputError: nobody is called that, or nobody is left.

    >>> found, absent = contenders(["top-k, fused", "oracle"])
    >>> [one.name for one in found], absent
    (['top-k, fused', 'oracle'], {})
    """
    every, absent = _every(limits or Limits(), seed)
    if wanted == "all":
        return list(every.values()), absent
    names = list(dict.fromkeys([BASELINE, *wanted]))
    unknown = [name for name in names if name not in every and name not in absent]
    if unknown:
        known = ", ".join([*every, *absent])
        raise InputError(f"no policy is called {unknown[0]!r}; there are: {known}")
    return (
        [every[name] for name in names if name in every],
        {name: absent[name] for name in names if name in absent},
    )


def _every(limits: Limits, seed: int) -> tuple[dict[str, Contender], dict[str, str]]:
    plain = Environment(limits)
    # Who selects as many passages as are asked for is compared at equal length.
    full = Limits(
        picks=limits.picks, tokens=limits.tokens, expanding="always", may_stop=False,
        added=limits.added,
    )  # fmt: skip
    stopping = Limits(
        picks=limits.picks, tokens=limits.tokens, expanding="always", may_stop=True,
        added=limits.added,
    )  # fmt: skip
    found: list[Contender] = [
        Fixed(TopK("fused", plain)),
        Fixed(TopK("lexical", plain)),
        Fixed(TopK("dense", plain)),
        *(Fixed(Mmr(weight, plain)) for weight in LAMBDAS),
        Cloned("pointwise", full, seed=seed, pointwise=True),
        LinearlyCloned("+BC, linear", full, seed=seed),
        Cloned(CLONE, full, seed=seed),
        Cloned(STOPPING, stopping, seed=seed),
    ]
    improving, absent = _improving()
    found += [Cloned(name, full, seed=seed, improve=train) for name, train in improving.items()]
    found.append(Fixed(Oracle(Environment(full))))
    return {one.name: one for one in found}, absent


def _improving() -> tuple[dict[str, Train], dict[str, str]]:
    """Return those that improve a clone from feedback, and why the others do not take part."""
    try:
        module = import_module(_LEARNERS)
    except ImportError as error:
        missing = f"it cannot be imported: {error}"
        return {}, dict.fromkeys(_IMPROVING, missing)
    found = {name: getattr(module, home, None) for name, home in _IMPROVING.items()}
    absent = {name: f"{_LEARNERS} has no {_IMPROVING[name]}" for name in found if not found[name]}
    return {name: train for name, train in found.items() if train is not None}, absent
