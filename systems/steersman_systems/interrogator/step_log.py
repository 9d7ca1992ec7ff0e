"""Log of steps as arrays, for warm starts.

A log has no texts and no embeddings: every situation is recomputed from the targets' vectors. The
shipped log (``steps.npz``, with ``steps.json``) has uniform choices on requests of the assistant,
whose embeddings are in the assistant's recording. ``steersman data record interrogator`` creates
both files again.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.points.feature_encoding import rounded
from steersman_systems.interrogator.choosers import Uniform, worth
from steersman_systems.interrogator.investigation import LIMIT, STOP_AT, investigate
from steersman_systems.interrogator.state import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from steersman.features import FeatureMap
    from steersman.spec.reward import Reward
    from steersman_systems.interrogator.answers import Answerer
    from steersman_systems.interrogator.choosers import Chooser, Learned
    from steersman_systems.interrogator.investigation import Investigation
    from steersman_systems.interrogator.questions import Questions
    from steersman_systems.interrogator.targets import Target

STEPS = Path(__file__).with_name("steps.npz")
PROVENANCE = Path(__file__).with_name("steps.json")
LEAST_STEPS = 3
"""Minimum number of steps; shorter sessions do not show which question is good, and are dropped."""
NOTHING = -1
"""Option of a question without a kept answer."""
_CAP = 16_000_000


@dataclass(frozen=True, slots=True, eq=False)
class StepLog:
    """n steps of whole sessions, in order.

    Args:
        names: (K,) text, names of the questions.
        target: (n,) int32, row of the target's vector.
        session: (n,) int32, equal within a session, rising.
        template: (n,) int16, asked question.
        option: (n,) int16, index of the answer in its vocabulary; −1 if none was kept.
        similarity: (n,) float64 before the answer.
        after: (n,) float64 after the answer.
        answer_similarity: (n,) float64 of the best option, kept or not.
        missed: (n,) bool, cache misses.
        propensity: (n,) float64, propensity of the asked question.
        eligible: (n, ⌈K/8⌉) uint8, bits of the eligible questions.
        opening: (n,) float64 similarity of the opening text and the target.
    """

    names: NDArray[np.str_]
    target: NDArray[np.int32]
    session: NDArray[np.int32]
    template: NDArray[np.int16]
    option: NDArray[np.int16]
    similarity: NDArray[np.float64]
    after: NDArray[np.float64]
    answer_similarity: NDArray[np.float64]
    missed: NDArray[np.bool_]
    propensity: NDArray[np.float64]
    eligible: NDArray[np.uint8]
    opening: NDArray[np.float64]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.template)

    @property
    def gain(self) -> NDArray[np.float64]:
        """Gain in similarity of each answer, (n,)."""
        return self.after - self.similarity

    @property
    def actions(self) -> list[str]:
        """Names of the n asked questions."""
        return [str(name) for name in self.names[self.template]]

    def eligible_mask(self) -> NDArray[np.bool_]:
        """Return the eligible questions of each step, (n, K) bool."""
        bits = np.unpackbits(self.eligible, axis=1, count=len(self.names))
        return bits.astype(np.bool_)

    def of_sessions(self, keep: NDArray[np.bool_]) -> StepLog:
        """Return the steps of some sessions."""
        chosen = {f.name: getattr(self, f.name)[keep] for f in fields(self) if f.name != "names"}
        return replace(self, **chosen)

    def contexts(self, vectors: NDArray[Any]) -> Iterator[dict[str, Any]]:
        """Yield the context of each step.

        Args:
            vectors: (m, size) float64 unit vectors of the targets, by row.
        """
        asked: tuple[str, ...] = ()
        for i, name in enumerate(self.actions):
            first = i == 0 or self.session[i] != self.session[i - 1]
            asked = () if first else asked
            yield context_of(
                vectors[self.target[i]],
                similarity=float(self.similarity[i]),
                change=0.0 if first else float(self.after[i - 1] - self.similarity[i - 1]),
                answer_similarity=float(
                    self.opening[i] if first else self.answer_similarity[i - 1]
                ),
                asked=asked,
            )
            asked = (*asked, name)

    def encoded(self, vectors: NDArray[Any], encoder: FeatureMap) -> NDArray[np.float64]:
        """Return the (n, d) feature vectors for learning, rounded like in the service."""
        rows = [encoder.encode(context) for context in self.contexts(vectors)]
        return rounded(np.array(rows).reshape(len(rows), encoder.dim))

    def rewards(self, reward: Reward) -> list[float]:
        """Return the n declared rewards, 0 to 1."""
        return [
            worth(reward, {"similarity_gain": float(gain), "cache_miss": float(missed)})
            for gain, missed in zip(self.gain, self.missed, strict=True)
        ]

    def to_bytes(self) -> bytes:
        """Return the arrays as one compressed npz; equal logs give equal bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{f.name: getattr(self, f.name) for f in fields(self)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> StepLog:
        """Read the log from the bytes of `to_bytes`.

        Raises:
            DataError: Other arrays, unequal lengths, values out of range, or more than 16 MB.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                declared = sum(member.file_size for member in archive.infolist())
            if declared > _CAP:
                message = f"the log unpacks to {declared} bytes; allowed: up to {_CAP}"
                raise DataError(message)
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                log = cls(**arrays)
        except (zipfile.BadZipFile, TypeError, ValueError) as wrong:
            message = f"invalid log of the interrogator: {wrong}; record it again"
            raise DataError(message) from wrong
        _check(log)
        return log


def record_steps(
    targets: Sequence[Target],
    answerer: Answerer,
    *,
    questions: Questions,
    rng: np.random.Generator,
    chooser: Chooser | None = None,
    steps: int = 10_000,
    limit: int = LIMIT,
    stop_at: float = STOP_AT,
) -> StepLog:
    """Return the log of investigations, in whole sessions until there are enough steps.

    Targets are used in random order, repeatedly. Sessions solved in fewer than three steps are
    dropped.
    It ends if a round over all targets adds no step.

    Args:
        chooser: Selects the questions; ``None`` for `Uniform`.
        steps: Minimum number of steps, ≥ 1.

    Raises:
        InputError: No targets, no steps, or only targets solved in fewer than three steps.
    """
    if not targets or steps < 1:
        message = f"{len(targets)} targets, {steps} steps; allowed: 1 or more of both"
        raise InputError(message)
    chooser = chooser or Uniform()
    rows: list[dict[str, Any]] = []
    session = 0
    while len(rows) < steps:
        before = len(rows)
        for place in rng.permutation(len(targets)):
            if len(rows) >= steps:
                break
            done = investigate(
                targets[place],
                questions=questions,
                chooser=chooser,
                answerer=answerer,
                rng=rng,
                limit=limit,
                stop_at=stop_at,
            )
            if not (done.solved and len(done.steps) < LEAST_STEPS):
                rows += _rows(done, questions, target=int(place), session=session)
                session += 1
        if len(rows) == before:
            message = f"all {len(targets)} targets are solved in under {LEAST_STEPS} steps"
            raise InputError(f"{message}; use other targets")
    return _log(rows, questions)


def warm(
    learned: Learned, log: StepLog, vectors: NDArray[Any], *, trust: float = 1.0
) -> NDArray[np.float64]:
    """Let a policy learn a log, one epoch.

    Args:
        learned: Chooser whose policy learns all steps or none.
        vectors: (m, size) float64 unit vectors of the log's targets, by row.
        trust: Weight of one step, in (0, 1].

    Raises:
        InputError: The log has other questions, or ``trust`` is out of range.
    """
    names = tuple(str(name) for name in log.names)
    if names != learned.policy.actions:
        message = (
            f"the log has {len(names)} questions, the policy {len(learned.policy.actions)}; "
            "expected the same names in the same order; record a log with these questions"
        )
        raise InputError(message)
    x = log.encoded(vectors, learned.encoder)
    weights = np.full(len(log), trust)
    learned.policy.learn_batch(x, log.actions, log.rewards(learned.reward), weights=weights)
    return x


def load_steps(questions: Questions, steps: Path = STEPS, provenance: Path = PROVENANCE) -> StepLog:
    """Load a log from its two files; default: the shipped log.

    Its targets are rows of the assistant's ``Recording.request_embedding``.

    Raises:
        DataError: A file is missing, a hash does not match, or the log has other questions.

    >>> from steersman_systems.interrogator.questions import load_questions
    >>> len(load_steps(load_questions())) >= 10_000
    True
    """
    again = "record it with `steersman data record interrogator`"
    for path in (steps, provenance):
        if not path.exists():
            message = f"{path} is missing; {again}"
            raise DataError(message)
    if steps.stat().st_size > _CAP:
        message = f"{steps} has {steps.stat().st_size} bytes; allowed: up to {_CAP}"
        raise DataError(message)
    content = steps.read_bytes()
    about = json.loads(provenance.read_text(encoding="utf-8"))
    found = {"sha256": hashlib.sha256(content).hexdigest(), "questions": questions.sha256}
    for name, value in found.items():
        if about.get(name) != value:
            message = f"{steps}: {name} is {value}; {provenance.name} expects {about.get(name)}"
            raise DataError(f"{message}; {again}")
    return StepLog.from_bytes(content)


def _rows(
    done: Investigation, questions: Questions, *, target: int, session: int
) -> Iterator[dict[str, Any]]:
    for step in done.steps:
        situation, answer = step.situation, step.answer
        name = step.drawn.action
        vocabulary = questions[name].vocabulary(situation.slots)
        yield {
            "target": target,
            "session": session,
            "template": questions.names.index(name),
            "option": vocabulary.index(answer.text) if answer.text in vocabulary else NOTHING,
            "similarity": situation.similarity,
            "after": answer.similarity,
            "answer_similarity": answer.answer_similarity,
            "missed": not answer.cache_hit,
            "propensity": step.drawn.propensity,
            "eligible": np.packbits([one in situation.eligible for one in questions.names]),
            "opening": done.opening.similarity,
        }


def _log(rows: list[dict[str, Any]], questions: Questions) -> StepLog:
    columns = {
        name: np.array([row[name] for row in rows], dtype) for name, dtype in _DTYPES.items()
    }
    return StepLog(names=np.array(questions.names), **columns)


_DTYPES: dict[str, Any] = {
    "target": np.int32,
    "session": np.int32,
    "template": np.int16,
    "option": np.int16,
    "similarity": np.float64,
    "after": np.float64,
    "answer_similarity": np.float64,
    "missed": np.bool_,
    "propensity": np.float64,
    "eligible": np.uint8,
    "opening": np.float64,
}


def _check(log: StepLog) -> None:
    steps, questions = len(log), len(log.names)
    for name, dtype in _DTYPES.items():
        array = getattr(log, name)
        shape = (steps, -(-questions // 8)) if name == "eligible" else (steps,)
        if array.shape != shape or array.dtype != dtype or not np.isfinite(array).all():
            message = (
                f"{name} of the log is {array.dtype} of shape {array.shape}; "
                f"expected finite {np.dtype(dtype)}, shape {shape}; record it again"
            )
            raise DataError(message)
    if steps == 0 or log.template.min() < 0 or log.template.max() >= questions:
        message = f"the log has no steps, or questions outside 0..{questions - 1}"
        raise DataError(f"{message}; record it again")
    if log.target.min() < 0 or log.propensity.min() <= 0 or log.propensity.max() > 1:
        message = "the log has targets below 0 or propensities outside (0, 1]; record it again"
        raise DataError(message)
