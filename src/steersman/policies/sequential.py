"""Base class of sequence policies: selection step by step.

Each step draws from the leading candidates and stop (`steersman.policies.sequence`), so the
propensity of a selection is exact. A subclass computes scores and learns.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy, Reads
from steersman.policies.offered import STANDING, Offered, Progress, SequenceForm
from steersman.policies.sequence import (
    STOP,
    Step,
    StepRule,
    draw_of_step,
    leading,
    sequence_propensity,
    step_distribution,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class Whole(NamedTuple):
    """Probability of a logged selection under a policy.

    Attributes:
        mass: probability of the whole selection.
        missing: unbiased estimate of the probability that the policy takes an action the log could
            not draw: Σ_t ρ_{t-1} u_t, with the weights ρ of the steps before, and u_t its
            probability of actions that were not eligible at step t.
    """

    mass: float
    missing: float


def weigh_whole(
    policy: SequencePolicy, offered: Offered, steps: Sequence[Mapping[str, Any]]
) -> Whole:
    """Return the probability of a logged selection under another policy.

    Args:
        policy: target policy.
        offered: candidates of the request.
        steps: stored steps: eligible actions, chosen action, propensity.

    Returns:
        The probability; 0 if the policy cannot draw this selection or would continue.

    >>> import numpy as np
    >>> from steersman.policies.offered import Offered
    >>> from steersman.policies import SequenceLinear
    >>> policy = SequenceLinear(features=["score"], max_steps=1, stop=False)
    >>> offered = Offered.of(["a", "b", "c", "d"], None, np.zeros((4, 1)))
    >>> weigh_whole(policy, offered, [{"eligible": ["a", "b", "c"], "action": "a", "p": 0.4}])
    Whole(mass=0.25, missing=0.25)
    """
    progress, done = Progress(offered, policy.form), []
    with suppress(ActionError):  # follow the log as far as possible
        for step in steps:
            progress.take(progress.place(step["action"]))
            done.append(step["action"])
    mass, missing, weight = 1.0, 0.0, 1.0
    for step, foreseen in zip(steps, policy.along(offered, done), strict=False):
        known = frozenset(step["eligible"])
        chances = zip(foreseen.eligible, foreseen.distribution.tolist(), strict=True)
        missing += weight * math.fsum(chance for name, chance in chances if name not in known)
        weight *= foreseen.chance / step["p"]
        mass *= foreseen.chance
    return Whole(mass if progress.ended and len(done) == len(steps) else 0.0, missing)


_MOST_STANDING = 1e4  # norm of what 100 steps add of the columns that the service keeps


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """Drawn selection.

    Args:
        picked: names of the picked candidates, in order.
        steps: logged steps.
        propensity: probability of the selection, Π p_t.
        distributions: for each step, float64 over its eligible actions.
        x: (columns + 1,) the sum of the rows of all actions, and 1; input of `learn`.
    """

    picked: tuple[str, ...]
    steps: tuple[Step, ...]
    propensity: float
    distributions: tuple[Floats, ...]
    x: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Foreseen:
    """Distribution of a policy for one step of a logged selection.

    Args:
        eligible: possible actions of the policy.
        distribution: float64 over these actions.
        chance: probability of the logged action; 0 if it does not lead.
    """

    eligible: tuple[str, ...]
    distribution: Floats
    chance: float


class SequencePolicy(ChoicePolicy):
    """Base class of policies that select from the candidates of a request.

    Attributes:
        form: declared form of the sequence.
        rule: parameters of the step distribution.
        start: initial weights by column name.
    """

    reads: Reads = "action_features"
    action_kinds = frozenset({"sequence"})
    form: SequenceForm
    rule: StepRule
    start: dict[str, float]
    _start: Floats

    def _declare(self, form: SequenceForm, rule: StepRule, start: Mapping[str, float]) -> None:
        columns = form.columns
        if not isinstance(start, Mapping):
            raise InputError(f"start must be a mapping of columns to weights; got {brief(start)}")
        unknown = [name for name in start if name not in columns]
        if unknown:
            raise InputError(
                f"start has the unknown column {unknown[0]!r}; allowed: {', '.join(columns)}"
            )
        self.form, self.rule = form, rule
        self.start = {name: inputs.parameter(name, start[name], -1e9, 1e9) for name in start}
        self._start = np.array([self.start.get(name, 0.0) for name in columns])

    def starting(self, rows: Floats) -> Floats:
        """Return the score of each action by the start weights alone.

        Args:
            rows: (k, columns) columns of each action.
        """
        found: Floats = rows @ self._start
        return found

    @abstractmethod
    def scores(self, rows: Floats) -> Floats:
        """Return the score of each action.

        Args:
            rows: (k, columns) columns of each action.
        """

    def select(self, offered: Offered, *, rng: np.random.Generator) -> Selected:
        """Return a selection, drawn with one uniform per step.

        Args:
            offered: candidates of the request.
            rng: random generator.

        Raises:
            InputError: wrong number of columns, numbers above about 1e6 / max_steps, or ``rng`` is
                not a generator (for example a seed).

        >>> from steersman.policies.offered import Offered
        >>> from steersman.policies import SequenceLinear
        >>> policy = SequenceLinear(features=["score"], max_steps=2, start={"score": 1.0})
        >>> offered = Offered.of(["a", "b"], {"b": ["c"]}, np.array([[0.1], [0.9], [0.5]]))
        >>> policy.select(offered, rng=np.random.default_rng(0)).picked
        ('b', 'c')
        """
        self._check_learnable(offered)
        progress = Progress(offered, self.form)
        steps, distributions = [], []
        x: Floats = np.zeros(len(self.form.columns) + 1)
        x[-1] = 1.0
        while not progress.ended:
            names, rows, places, scores = self._leading(progress)
            distribution = step_distribution(scores, self.rule)
            number, step = draw_of_step(names, distribution, rng=rng)
            steps.append(step)
            distributions.append(distribution)
            x[:-1] += rows[number]
            progress.take(int(places[number]))
        picked = tuple(offered.names[place] for place in progress.picked)
        return Selected(picked, tuple(steps), sequence_propensity(steps), tuple(distributions), x)

    def _check_learnable(self, offered: Offered) -> None:
        """Refuse what `learn` may refuse, before anything is drawn: not by what was picked."""
        inputs.kind("offered", offered, Offered, "the result of Offered.of")
        names, steps = self.form.features, self.form.max_steps
        unknown = ~np.isfinite(offered.rows)
        if unknown.any():
            row, column = divmod(int(unknown.argmax()), unknown.shape[1])
            place = column - len(names)
            name = names[column] if place < 0 else f"vector[{place}]"
            raise InputError(
                f"{name} of {offered.names[row]!r:.80} is {offered.rows[row, column]:g}; "
                "allowed: any finite number; omit the candidate if the number is unknown"
            )
        own = offered.rows[:, : len(names)]
        most = (inputs.LARGEST_NORM - _MOST_STANDING) / steps
        if not own.size or np.einsum("ij,ij->i", own, own).max() <= most**2:
            return
        row, column = divmod(int(np.abs(own).argmax()), own.shape[1])
        raise InputError(
            f"{names[column]} of {offered.names[row]!r:.80} is {own[row, column]:g}; the "
            f"features of a candidate may have a norm of at most {most:g} (1e6 over {steps} "
            "steps): use a smaller scale"
        )

    def along(self, offered: Offered, actions: Sequence[str]) -> list[Foreseen]:
        """Return this policy's distribution at each step of a logged selection.

        Args:
            offered: candidates of the request.
            actions: logged actions: names of candidates, and stop at the end.

        Raises:
            ActionError: an action that is not possible under the declared form.
            InputError: not an `Offered`, or not a list of actions.

        >>> from steersman.policies.offered import Offered
        >>> from steersman.policies import SequenceLinear
        >>> policy = SequenceLinear(features=["score"], max_steps=1, leading=1, stop=False)
        >>> offered = Offered.of(["a", "b"], None, np.zeros((2, 1)))
        >>> [step.chance for step in policy.along(offered, ["b"])]
        [0.0]
        """
        progress = Progress(offered, self.form)
        found = []
        for action in inputs.texts("actions", actions):
            place = progress.place(action)
            names, _, places, scores = self._leading(progress)
            distribution = step_distribution(scores, self.rule)
            chance = float(distribution[places == place].sum())
            found.append(Foreseen(names, distribution, chance))
            progress.take(place)
        return found

    def chance(self, offered: Offered, actions: Sequence[str]) -> float:
        """Return this policy's probability of a logged selection.

        Args:
            offered: candidates of the request.
            actions: logged action of each step.

        Returns:
            In [0, 1]; 0 for a selection that is not possible under the declared form.

        Raises:
            InputError: not an `Offered`, or not a list of actions.
        """
        progress, done = Progress(offered, self.form), inputs.texts("actions", actions)
        try:
            for action in done:
                progress.take(progress.place(action))
        except ActionError:
            return 0.0
        if not progress.ended:  # it would have gone on
            return 0.0
        return math.prod(step.chance for step in self.along(offered, done))

    def _leading(
        self, progress: Progress
    ) -> tuple[tuple[str, ...], Floats, NDArray[np.intp], Floats]:
        """Return names, rows, places and scores of what may be drawn now."""
        open_now, rows = progress.places, progress.rows
        with np.errstate(over="ignore", invalid="ignore"):  # refused where it is drawn from
            scores = self.scores(rows)
        candidates = len(open_now)
        first = leading(without_noise(scores[:candidates]), self.rule.leading)
        # Names of these alone: a step of thousands of candidates draws among a few.
        names = tuple(progress.offered.names[place] for place in open_now[first].tolist())
        if not self.form.stop:
            return names, rows[first], first, scores[first]
        places = np.append(first, candidates)
        return (*names, STOP), rows[places], places, scores[places]

    # -- what a policy of kind choice does and this one does not -----------------------------------

    def _decide(self, x: Any, eligible: Any, features: Any) -> NoReturn:
        raise InputError(
            f"{self.algorithm} selects step by step; call select with the offered candidates"
        )

    def _score(self, x: Any, mask: Mask | None, features: Any) -> NoReturn:
        self._decide(x, None, features)

    def index(self, action: str) -> int:
        """Return 0 for the name of any selection: there is one model for all.

        Args:
            action: JSON list of the picks, or any other text.
        """
        return 0 if inputs.is_text(action) else super().index(action)

    def add_action(self, name: str, *, explore: int = 0, share: float = 0.05) -> NoReturn:
        """Refuse: candidates come with each request.

        Args:
            name: unused.
            explore: unused.
            share: unused.

        Raises:
            InputError: always.
        """
        raise InputError("cannot add an action: candidates come with each request")

    def remove_action(self, name: str) -> NoReturn:
        """Refuse: candidates come with each request.

        Args:
            name: unused.

        Raises:
            InputError: always.
        """
        raise InputError("cannot remove an action: candidates come with each request")

    def _shape(self) -> dict[str, Any]:
        """Return the constructor's arguments that every sequence policy has."""
        return {
            "features": list(self.form.features),
            "vector": self.form.vector,
            "max_steps": self.form.max_steps,
            "stop": self.form.stop,
            "leading": self.rule.leading,
            "temperature": self.rule.temperature,
            "start": self.start,
        }


def without_noise(scores: Floats) -> Floats:
    """Return scores without their last bits, so that equal candidates are equal on any machine.

    A product of matrices sums in an order that depends on their sizes and on the processor: rows
    alike to the bit get scores that differ by a few times 1e-16.

    Args:
        scores: (n,) of candidates.

    Returns:
        The same to 12 digits after that of the largest; as they are beyond 1e±200.

    >>> without_noise(np.array([0.1 + 0.2, 0.3, -4.0])).tolist()
    [0.3, 0.3, -4.0]
    """
    largest = float(np.abs(scores).max(initial=0.0))
    if not 1e-200 < largest < 1e200:
        return scores
    scale = 10.0 ** (12 - math.floor(math.log10(largest)))
    found: Floats = np.round(scores * scale) / scale
    return found


def form_of(
    actions: Sequence[str], features: Sequence[str], max_steps: int, vector: int, *, stop: bool
) -> SequenceForm:
    """Return the rules that a constructor was given, checked.

    Args:
        actions: none may be named.
        features: different names.
        max_steps: 1 to 100.
        vector: 0 to 1,024.
        stop: whether a selection may stop before.

    Raises:
        InputError: argument out of range.

    >>> form_of((), ["score"], 3, 0, stop=True).max_steps
    3
    """
    if actions:
        raise InputError(
            f"actions are {actions!r:.80}; allowed: empty, because candidates come with each "
            "request"
        )
    names = inputs.names(features)
    if taken := set(names) & set(STANDING):
        raise InputError(f"feature names {sorted(taken)} are reserved; rename them")
    steps = inputs.whole("max_steps", max_steps, 1, 100)
    return SequenceForm(
        names, inputs.whole("vector", vector, 0, 1024), steps, inputs.truth("stop", stop)
    )
