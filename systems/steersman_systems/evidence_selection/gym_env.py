"""Selection environment with the Gymnasium interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as missing:
    _MESSAGE = "this environment needs the package gymnasium; install it with: "
    raise DataError(_MESSAGE + how_to_install("evidence")) from missing

from steersman_systems.evidence_selection.features import FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.tasks import EvidenceTask

    Observation = dict[str, NDArray[Any]]


class EvidenceEnv(gymnasium.Env[dict[str, Any], Any]):
    """Evidence selection for one question after the other.

    An observation has ``rows`` (most + 2, features): candidates in the pool's order, padded with
    zeros, then expand and stop; and ``mask`` (most + 2,) of legal actions. Actions are row indices.
    The reward is γΦ(s′) − Φ(s) by the declared shaping terms, plus the selection's reward at the
    end. An episode also ends if only candidates hidden by `most` remain. No agent can continue
    then, so this is a termination, not a truncation. A masked action raises an error and ends
    nothing.

    Args:
        tasks: questions, at least one.
        most: maximum candidates in an observation; later ones cannot be picked; 1 to 1,000.
        gamma: discount of the shaping, in [0, 1].

    Raises:
        InputError: no question, a question without a legal first action, or a number out of range.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as the base class has it

    def __init__(
        self, tasks: Sequence[EvidenceTask], *, most: int = 200, gamma: float = 0.99
    ) -> None:
        if not tasks or most not in range(1, 1001) or not 0.0 <= gamma <= 1.0:
            raise InputError(
                f"{len(tasks)} questions, most {most!r}, gamma {gamma!r}; allowed: ≥ 1, 1 to "
                "1,000, and 0 to 1"
            )
        self._tasks, self._most, self._gamma = list(tasks), most, gamma
        for task in self._tasks:
            if not (task.begin().places < most).any():
                raise InputError(
                    f"nothing can be done for question {task.id!r}: no passage fits its limits; "
                    "leave it out, or allow more tokens or stopping"
                )
        self._turn = -1
        self.observation_space = spaces.Dict({
            "rows": spaces.Box(-np.inf, np.inf, (most + 2, len(FEATURES)), np.float64),
            "mask": spaces.MultiBinary(most + 2),
        })  # fmt: skip
        self.action_space = spaces.Discrete(most + 2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Return the first observation of the next question, or of a random one with a seed.

        Args:
            seed: random seed of the question; None: the next question.

        Raises:
            InputError: the question does not exist.
        """
        super().reset(seed=seed)
        turn = (options or {}).get("question")
        if turn is None:
            turn = self._turn + 1 if seed is None else self.np_random.integers(len(self._tasks))
            turn = int(turn) % len(self._tasks)
        if turn not in range(len(self._tasks)):
            raise InputError(f"question is {turn!r}; allowed: 0 to {len(self._tasks) - 1}")
        self._turn, self._task = turn, self._tasks[turn]
        self._standing = self._task.begin()
        return self._observed(), {"question": self._task.id}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Return the result of an action.

        Raises:
            InputError: the mask does not allow it, or the selection has ended.
        """
        if int(action) not in self._rows_of:
            raise InputError(
                f"action {action!r} is masked; allowed: {sorted(self._rows_of)[:20]}; "
                "reset when a selection has ended"
            )
        before = self._task.potential(self._standing)
        self._standing = self._task.take(self._standing, self._rows_of[int(action)])
        observed = self._observed()
        ended = not self._rows_of
        # The task may continue with candidates hidden by `most`; Φ is 0 at the end of this episode.
        after = 0.0 if ended else self._task.potential(self._standing)
        reward = self._gamma * after - before
        if ended:
            reward += self._task.reward(self._standing)
        picked = [self._standing.state.pool.candidates[p].id for p in self._standing.state.picked]
        return observed, float(reward), ended, False, {"picked": picked}

    def _observed(self) -> Observation:
        rows = np.zeros((self._most + 2, len(FEATURES)))
        mask = np.zeros(self._most + 2, np.int8)
        options = self._task.options(self._standing)
        self._rows_of: dict[int, int] = {}
        if options is not None:
            for place, action in enumerate(self._standing.places.tolist()):
                # Expand is −2 and stop −1, which also index the last two rows.
                row = action if action >= 0 else self._most + 2 + action
                if action < self._most:
                    rows[row], mask[row] = options.rows[place], 1
                    self._rows_of[row] = place
        return {"rows": rows, "mask": mask}
