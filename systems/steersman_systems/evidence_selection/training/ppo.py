"""PPO for sequence policies, on top of a clone and with a limit on the distance from it.

The policy adds a network, which starts at zero, to the clone's scores. Probability ratios use the
exact propensities, including the floor. Advantages come from `steersman.training.ppo`, with the
final reward at the last step and the shaping term γΦ(s′) − Φ(s) at each step.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.format import check_numbers
from steersman.errors.install_hint import how_to_install

try:
    import torch
except ImportError as missing:
    _MESSAGE = "PPO needs the package torch; install it with: "
    raise DataError(_MESSAGE + how_to_install("rl")) from missing

from steersman.policies.scorers import SummedScorer
from steersman.policies.sequence import StepRule
from steersman.training.optimizer import Adam
from steersman.training.ppo.advantages import advantages
from steersman_systems.evidence_selection.training.checkpoints import Checkpoints
from steersman_systems.evidence_selection.training.network import PaddedSteps, RowNetwork, scale_of
from steersman_systems.evidence_selection.training.rounds import (
    Round,
    TrainingResult,
    greedy_rewards,
    mean_reward,
    split,
)
from steersman_systems.evidence_selection.training.run_digest import about_run
from steersman_systems.evidence_selection.training.task import walks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.training.rounds import Sampler, Stopped
    from steersman_systems.evidence_selection.training.task import Task, Walk

    Floats = NDArray[np.float64]

_log = logging.getLogger(__name__)
_CPU = torch.device("cpu")
_LEAST = 3
"""Minimum steps for a standard deviation: advantages of two steps would always be 1 and -1."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """Settings of PPO.

    Args:
        rounds: maximum number of rounds, ≥ 1.
        each: selections per question and round, ≥ 1.
        rule: sampling rule; its temperature must be above 0.
        clip: ε, range of the probability ratio, in (0, 1).
        smoothing: λ of the advantages, in [0, 1].
        gamma: discount per step, in [0, 1].
        learning_rate: learning rate of Adam, > 0.
        epochs: maximum passes over the steps of a round, ≥ 1.
        minibatch: steps per update, ≥ 1; a remainder of one or two joins the last minibatch.
            Advantages are normalised within it; with one or two steps, over the whole round.
        kl_step: KL divergence per round, in nats per step, at which its epochs end, > 0.
        kl_clone: weight of the KL divergence from the clone in the loss, ≥ 0.
        kl_limit: maximum KL divergence from the clone, in nats per step, > 0. An epoch that exceeds
            it is undone, and training ends.
        entropy: weight of the entropy, ≥ 0.
        hidden: width of both networks, ≥ 1.
        max_norm: maximum gradient norm, > 0.
        held_out: share of held-out questions that judge each round, in (0, .5].
        patience: rounds without improvement before early stopping, ≥ 1.
        regression: drop of the held-out reward below the best that restores the best round, ≥ 0.

    Raises:
        InputError: a value is out of range.
    """

    rounds: int = 12
    each: int = 8
    rule: StepRule = field(default_factory=lambda: StepRule(10, 1.0, 0.02))
    clip: float = 0.2
    smoothing: float = 0.95
    gamma: float = 0.99
    learning_rate: float = 1e-3
    epochs: int = 4
    minibatch: int = 256
    kl_step: float = 0.05
    kl_clone: float = 0.005
    kl_limit: float = 5.0
    entropy: float = 0.001
    hidden: int = 32
    max_norm: float = 0.5
    held_out: float = 0.2
    patience: int = 4
    regression: float = 0.02

    def __post_init__(self) -> None:
        check_numbers(
            self,
            {
                "rounds": ">= 1", "each": ">= 1", "clip": "(0, 1)", "smoothing": "[0, 1]",
                "gamma": "[0, 1]", "learning_rate": "> 0", "epochs": ">= 1", "minibatch": ">= 1",
                "kl_step": "> 0", "kl_clone": ">= 0", "kl_limit": "> 0", "entropy": ">= 0",
                "hidden": ">= 1", "max_norm": "> 0", "held_out": "(0, 0.5]", "patience": ">= 1",
                "regression": ">= 0",
            },
        )  # fmt: skip
        if not self.rule.temperature > 0:
            raise InputError(f"rule is {self.rule!r}; its temperature must be above 0")


def ppo(
    tasks: Sequence[Task],
    start: Scorer,
    settings: PpoSettings | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    sample: Sampler = walks,
) -> TrainingResult:
    """Return a policy improved by clipped policy gradients from feedback only.

    `folder`: checkpoint folder; an interrupted run resumes and gives identical bytes.

    Raises:
        InputError: too few questions.
        DataError: the folder belongs to another run.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), equation 7; the
    divergence from a start: Ziegler et al., Fine-Tuning Language Models from Human Preferences
    (2019), equation 2.
    """
    how = settings or PpoSettings()
    learned, judged = split(tasks, how.held_out, seed)
    run = _Run(how, start, learned, judged, seed, sample)
    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(folder, about_run(how, seed, tasks, start))
    run.begin()
    found = None if checkpoints is None else checkpoints.last()
    if found is not None:
        run.restore(found[1])
    while run.stopped is None:
        run.round()
        if checkpoints is not None:
            checkpoints.save(len(run.rounds), run.arrays())
    return TrainingResult(run.scorer(run.best), tuple(run.rounds), run.before, run.stopped)


class _Run:
    """Networks and their state between two rounds."""

    def __init__(
        self, how: PpoSettings, start: Scorer, learned: Sequence[Task], judged: Sequence[Task],
        seed: int, sample: Sampler,
    ) -> None:  # fmt: skip
        self.how, self.start, self.seed, self.sample = how, start, seed, sample
        self.learned, self.judged = learned, judged
        self.rounds: list[Round] = []
        self.since = 0
        self.stopped: Stopped | None = None

    # -- between rounds ---------------------------------------------------------------------------

    def begin(self) -> None:
        log = self.sample(self.learned, self.start, self.how.rule, each=1, seed=self.seed)
        seen = [taken.rows for one in log for taken in one.taken]
        if not seen:
            message = f"none of the {len(self.learned)} training questions has a step"
            raise InputError(message + "; pass questions with candidates")
        rows = np.concatenate(seen)
        mean, scale = scale_of(rows)
        generator = torch.Generator().manual_seed(self.seed)
        self.policy = RowNetwork(mean, scale, self.how.hidden, 2, generator, silent=True)
        self.value = RowNetwork(np.tile(mean, 2), np.tile(scale, 2), self.how.hidden, 2, generator,
                                silent=True)  # fmt: skip
        self.parameters = [*self.policy.parameters(), *self.value.parameters()]
        self.optimizer = Adam(self.parameters, lr=self.how.learning_rate, eps=1e-5)
        self.before = self._held_out(self.start)
        self.best, self.best_reward = self._weights(), self.before

    def _held_out(self, scorer: Scorer) -> float:
        found = greedy_rewards(self.judged, scorer, self.how.rule, self.sample)
        return mean_reward(self.judged, found)

    def _weights(self) -> dict[str, NDArray[np.generic]]:
        named = {**{f"policy.{n}": t for n, t in self.policy.state_dict().items()},
                 **{f"value.{n}": t for n, t in self.value.state_dict().items()}}  # fmt: skip
        return {name: tensor.numpy().copy() for name, tensor in named.items()}

    def _load(self, weights: Mapping[str, NDArray[np.generic]]) -> None:
        for prefix, network in (("policy.", self.policy), ("value.", self.value)):
            network.load_state_dict(
                {name.removeprefix(prefix): torch.from_numpy(np.array(array))
                 for name, array in weights.items() if name.startswith(prefix)}
            )  # fmt: skip

    def scorer(self, weights: Mapping[str, NDArray[np.generic]] | None = None) -> Scorer:
        if weights is not None:
            self._load(weights)
        return SummedScorer((self.start, self.policy.scorer()))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        found = {f"now/{name}": array for name, array in self._weights().items()}
        found |= {f"best/{name}": array for name, array in self.best.items()}
        for number, kept in self.optimizer.state_dict()["state"].items():
            for name, value in kept.items():
                found[f"adam/{number}.{name}"] = value.detach().numpy().copy()
        rounds = [[r.reward, r.best, r.kept, r.held_out] for r in self.rounds]
        found["rounds"] = np.array(rounds, np.float64).reshape(-1, 4)
        found["numbers"] = np.array([self.best_reward, self.since])
        found["stopped"] = np.frombuffer((self.stopped or "-").encode(), np.uint8).copy()
        return found

    def restore(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        parts: dict[str, dict[str, NDArray[np.generic]]] = defaultdict(dict)
        for name, array in arrays.items():
            group, _, key = name.partition("/")
            parts[group][key] = array
        self._load(parts["now"])
        self.best = parts["best"]
        adam: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, array in parts["adam"].items():
            number, _, field_name = name.partition(".")
            adam[int(number)][field_name] = torch.from_numpy(np.array(array))
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": dict(adam), "param_groups": groups})
        rows = np.asarray(arrays["rounds"], np.float64).tolist()
        self.rounds = [Round(a, b, int(c), d) for a, b, c, d in rows]
        best_reward, since = np.asarray(arrays["numbers"], np.float64).tolist()
        self.best_reward, self.since = best_reward, int(since)
        stopped = arrays["stopped"].tobytes().decode()
        self.stopped = None if stopped == "-" else stopped  # type: ignore[assignment]

    # -- one round --------------------------------------------------------------------------------

    def round(self) -> None:
        number = len(self.rounds)
        log = self.sample(
            self.learned, self.scorer(), self.how.rule, each=self.how.each,
            seed=1_000_003 * self.seed + number,
        )  # fmt: skip
        kept = self._weights()
        try:
            told = _StepInputs.of(log, self.start, self.policy, self.value, self.how)
            far = self._improve(told, np.random.default_rng([self.seed, number]))
            held_out = self._held_out(self.scorer())
        except FloatingPointError as wrong:
            _log.warning("PPO stopped in round %d: %s; keeping the last good round", number, wrong)
            self._load(kept)
            self.stopped = "not finite"
            return
        rewards = [one.reward for one in log]
        self.rounds.append(Round(float(np.mean(rewards)), max(rewards), len(log), held_out))
        self._after(held_out, far=far)

    def _after(self, held_out: float, *, far: bool) -> None:
        self.since = 0 if held_out > self.best_reward else self.since + 1
        if held_out > self.best_reward:
            self.best, self.best_reward = self._weights(), held_out
        elif held_out < self.best_reward - self.how.regression:
            self._load(self.best)
        if far or self.since >= self.how.patience:
            self.stopped = "early"
        elif len(self.rounds) >= self.how.rounds:
            self.stopped = "rounds"

    def _improve(self, told: _StepInputs, rng: np.random.Generator) -> bool:
        """Train on the steps; return whether the KL limit was exceeded."""
        for _ in range(self.how.epochs):
            before = self._weights()
            order = torch.from_numpy(rng.permutation(len(told.ahead)))
            for places in _minibatches(order, self.how.minibatch):
                self._update(told, places)
            with torch.no_grad():
                logs = told.logs(self.policy, self.how.rule)
                moved = _divergence(told.before, logs, told.padded.there)
                away = _divergence(logs, told.clone, told.padded.there)
            if away > self.how.kl_limit:
                self._load(before)
                return True
            if moved > self.how.kl_step:
                break
        return False

    def _update(self, told: _StepInputs, places: torch.Tensor) -> None:
        how, there = self.how, told.padded.there[places]
        logs = told.at(places).logs(self.policy, how.rule)
        ratio = torch.exp(logs.gather(1, told.chosen[places]).squeeze(1) - told.drawn[places])
        ahead = _normalised(told.ahead[places], told.ahead)
        gained = torch.minimum(ratio * ahead, ratio.clamp(1 - how.clip, 1 + how.clip) * ahead)
        missed = (self.value(told.states[places]) - told.returns[places]) ** 2
        spread = -(torch.exp(logs) * logs).masked_fill(~there, 0.0).sum(dim=1)
        away = (torch.exp(logs) * (logs - told.clone[places])).masked_fill(~there, 0.0).sum(dim=1)
        loss = 0.5 * missed.mean() - gained.mean()
        loss = loss + how.kl_clone * away.mean() - how.entropy * spread.mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()}; lower the learning rate")
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, how.max_norm)
        self.optimizer.step()


def _minibatches(order: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Return minibatches; a remainder too small for a standard deviation joins the last."""
    parts = list(torch.split(order, size))
    if size >= _LEAST and len(parts) > 1 and len(parts[-1]) < _LEAST:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def _normalised(ahead: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return advantages with mean 0 and deviation 1; a tiny minibatch uses the round's."""
    among = ahead if len(ahead) >= _LEAST else whole
    if len(among) < 2:
        return ahead
    return (ahead - among.mean()) / (among.std(correction=0) + 1e-8)


@dataclass(frozen=True, slots=True, eq=False)
class _StepInputs:
    """Steps of a round as network inputs."""

    padded: PaddedSteps
    states: torch.Tensor
    chosen: torch.Tensor
    drawn: torch.Tensor
    ahead: torch.Tensor
    returns: torch.Tensor
    clone: torch.Tensor
    before: torch.Tensor

    @classmethod
    def of(
        cls, log: Sequence[Walk], start: Scorer, policy: RowNetwork, value: RowNetwork,
        how: PpoSettings,
    ) -> _StepInputs:  # fmt: skip
        taken = [one for walked in log for one in walked.taken]
        padded = PaddedSteps.of([one.rows for one in taken], start, _CPU)
        states = torch.from_numpy(
            np.stack([np.concatenate([o.rows.mean(axis=0), o.rows.max(axis=0)]) for o in taken])
        )
        rewards, last = _rewards(log, how.gamma)
        if not np.isfinite(rewards).all():
            raise FloatingPointError("a reward is not a finite number")
        with torch.no_grad():
            expected = value(states).numpy()
        ahead = advantages(rewards, expected, last, gamma=how.gamma, smoothing=how.smoothing)
        clone = _logs(padded.base.masked_fill(~padded.there, -1e30), padded.there, how.rule)
        drawn = torch.tensor([one.step.p for one in taken], dtype=torch.float64).log()
        before = _logs(padded.scores(policy).detach(), padded.there, how.rule)
        return cls(
            padded, states, torch.tensor([[one.chosen] for one in taken]), drawn,
            torch.from_numpy(ahead), torch.from_numpy(ahead + expected), clone, before,
        )  # fmt: skip

    def at(self, places: torch.Tensor) -> _StepInputs:
        return _StepInputs(
            self.padded.at(places), *(getattr(self, name)[places] for name in
            ("states", "chosen", "drawn", "ahead", "returns", "clone", "before")),
        )  # fmt: skip

    def logs(self, policy: RowNetwork, rule: StepRule) -> torch.Tensor:
        return _logs(self.padded.scores(policy), self.padded.there, rule)


def _rewards(log: Sequence[Walk], gamma: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each step's reward with shaping, and whether it was the last."""
    rewards, last = [], []
    for one in log:
        if not one.taken:
            continue
        shaped = gamma * one.potentials[1:] - one.potentials[:-1]
        shaped[-1] += one.reward
        rewards.append(shaped)
        last.append(np.arange(len(shaped)) == len(shaped) - 1)
    return np.concatenate(rewards), np.concatenate(last)


def _logs(scores: torch.Tensor, there: torch.Tensor, rule: StepRule) -> torch.Tensor:
    masses = torch.softmax(scores / rule.temperature, dim=1)
    floor = rule.floor / there.sum(dim=1, keepdim=True).to(scores.dtype)
    mixed = (1.0 - rule.floor) * masses + floor
    return torch.log(mixed.clamp_min(1e-300)).masked_fill(~there, 0.0)


def _divergence(one: torch.Tensor, other: torch.Tensor, there: torch.Tensor) -> float:
    parts = (torch.exp(one) * (one - other)).masked_fill(~there, 0.0)
    return float(parts.sum(dim=1).mean())
