"""PPO over whole configurations, per batch or per question by category and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.training.ppo.agent import PPO, Steps
from steersman_systems.rag_tuner.actions import Choices
from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal, nothing_holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.training.ppo.action_parts import DrawnAction
    from steersman.training.ppo.settings import Settings
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

_EVERY = 8
_QUESTIONS = 256
_LONG = 16.0
"""Unit of the number of words."""


class ContextualPpo:
    """PPO with a configuration per question: one-step episodes, one head for each part.

    The tuning loop evaluates one configuration on a batch. So as its strategy, PPO draws for the
    mean context of all questions, and learns from the mean of the batch. With `ask_each` and
    `tell_each` it draws for every question and learns from each.

    It recommends one configuration: the likeliest at the mean context among evaluated ones that
    hold every gate. `mapping` returns the likeliest for each category.

    Args:
        tuned: Bounds, gates, weights.
        contexts: (queries, features) features of each question from `contexts_of`; default: a
            bandit without context.
        every: Evaluations per update, ≥ 1; with single questions, 256.
        settings: Settings of PPO.
        seed: Random seed of the initial weights.

    Raises:
        InputError: Contexts are not a matrix of finite numbers, or `every` is below 1.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017).
    """

    name = "ppo"
    on_policy = True
    """Old evaluations were not drawn from these weights, so they cannot train them."""

    def __init__(
        self,
        tuned: PolicyConfig,
        contexts: Floats | None = None,
        *,
        every: int = _EVERY,
        settings: Settings | None = None,
        seed: int = 0,
    ) -> None:
        known = np.ones((1, 1)) if contexts is None else np.asarray(contexts, np.float64)
        if known.ndim != 2 or not known.size or not np.isfinite(known).all() or every < 1:
            message = f"contexts are {known.shape}, every is {every!r}; allowed: (n, d), n and d"
            raise InputError(f"{message} 1 or more, all finite, and 1 or more evaluations")
        self._contexts = known
        self._mean = known.mean(axis=0)
        self._space = tuned.space
        self._choices = Choices(self._space)
        self._every = every
        self._ledger = Ledger(tuned)
        self.agent = PPO(self._choices.parts, known.shape[1], settings=settings, seed=seed)
        self._asked: list[tuple[Configuration, DrawnAction]] = []
        self._batches = _Waiting()
        self._questions = _Waiting()

    # -- batches ------------------------------------------------------------------------

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return a configuration drawn for the mean context."""
        drawn = self.agent.act(self._mean, rng)
        configuration = self._choices.configuration(drawn.values)
        self._asked.append((configuration, drawn))
        return Proposal(configuration, self._choices.product(configuration, drawn.parts))

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Learn after enough evaluations; those of other strategies are only recorded."""
        self._ledger.enter(batch, reward)
        place = next(
            (n for n, one in enumerate(self._asked) if one[0] == batch.configuration), None
        )
        if place is None:
            return
        _, drawn = self._asked.pop(place)
        if np.isfinite(reward.value):
            self._batches.add(self._mean, drawn, reward.value)
        if len(self._batches) >= self._every:
            self.agent.learn(self._batches.taken())

    def recommend(self) -> Configuration:
        """Return the likeliest evaluated configuration that holds every gate.

        Raises:
            InputError: No such configuration.
        """
        known = self._ledger.configurations
        held = [
            one for one in known
            if one in self._space.index and not self._ledger.breaches(one)
        ]  # fmt: skip
        if not held:
            raise InputError(nothing_holds(len(known)))
        masses = self.agent.distributions(self._mean)
        return max(held, key=lambda one: self._choices.propensity(one, masses))

    # -- single questions ---------------------------------------------------------------------

    def ask_each(
        self, queries: NDArray[np.intp], rng: np.random.Generator
    ) -> list[tuple[Proposal, DrawnAction]]:
        """Return a configuration for each question, with the draw for `tell_each`.

        Raises:
            InputError: A question has no context.
        """
        found = []
        for drawn in self.agent.act_on(self._of(queries), rng):
            configuration = self._choices.configuration(drawn.values)
            mass = self._choices.product(configuration, drawn.parts)
            found.append((Proposal(configuration, mass), drawn))
        return found

    def tell_each(
        self, queries: NDArray[np.intp], drawn: Sequence[DrawnAction], rewards: Floats
    ) -> None:
        """Learn from single questions, in updates of 256."""
        for state, one, reward in zip(self._of(queries), drawn, rewards, strict=True):
            if np.isfinite(reward):
                self._questions.add(state, one, float(reward))
        if len(self._questions) >= _QUESTIONS:
            self.agent.learn(self._questions.taken())

    def likeliest(self, query: int) -> Configuration:
        """Return the likeliest configuration for a question.

        Raises:
            InputError: The question has no context.
        """
        (state,) = self._of(np.array([query]))
        return self._choices.configuration(self.agent.best(state))

    def mapping(self, categories: Sequence[str]) -> dict[str, Configuration]:
        """Return the likeliest configuration for the mean context of each category.

        Raises:
            InputError: The numbers of categories and contexts differ.
        """
        if len(categories) != len(self._contexts):
            raise InputError(f"{len(categories)} categories for {len(self._contexts)} contexts")
        labels = np.asarray(categories)
        means = {str(one): self._contexts[labels == one].mean(axis=0) for one in np.unique(labels)}
        return {
            one: self._choices.configuration(self.agent.best(mean)) for one, mean in means.items()
        }

    def _of(self, queries: NDArray[np.intp]) -> Floats:
        if np.any(np.asarray(queries) >= len(self._contexts)):
            message = f"question {int(np.max(queries))} has no context; "
            raise InputError(f"{message}{len(self._contexts)} were given: give one for each")
        return self._contexts[queries]


def contexts_of(texts: Sequence[str], categories: Sequence[str]) -> Floats:
    """Return cheap features of questions, known before a search.

    Args:
        texts: (n,) texts of the questions, n ≥ 1.
        categories: (n,) category of each question; "" for none.

    Returns:
        (n, 4 + categories): number of words over 16 (at most 2), shares of words with a digit and
        with a capital after the first word, whether it ends as a question, and one-hot categories.

    Raises:
        InputError: The numbers of texts and categories differ, or no text.

    >>> contexts_of(["Who wrote Lisp 1.5?"], ["names"]).round(2).tolist()
    [[0.25, 0.25, 0.33, 1.0, 1.0]]
    """
    if len(texts) != len(categories) or not texts:
        message = f"{len(texts)} texts, {len(categories)} categories; give one of each, 1 or more"
        raise InputError(message)
    labels, kinds = np.unique(np.asarray(categories), return_inverse=True)
    shapes = np.array([_shape(text) for text in texts])
    return np.concatenate([shapes, np.eye(len(labels))[kinds]], axis=1)


def _shape(text: str) -> list[float]:
    words = text.split()
    digits = sum(any(sign.isdigit() for sign in word) for word in words)
    names = sum(word[0].isupper() for word in words[1:])
    return [
        min(len(words) / _LONG, 2.0),
        digits / max(len(words), 1),
        names / max(len(words) - 1, 1),
        float(text.rstrip().endswith("?")),
    ]


class _Waiting:
    """Steps since the last update; each is an episode."""

    def __init__(self) -> None:
        self._steps: list[tuple[Floats, DrawnAction, float]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, state: Floats, drawn: DrawnAction, reward: float) -> None:
        self._steps.append((state, drawn, reward))

    def taken(self) -> Steps:
        steps, self._steps = self._steps, []
        return Steps(
            np.array([state for state, _, _ in steps]),
            np.array([drawn.values for _, drawn, _ in steps]),
            np.array([drawn.propensity for _, drawn, _ in steps]),
            np.array([reward for _, _, reward in steps]),
            np.ones(len(steps), bool),
        )
