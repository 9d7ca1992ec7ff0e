"""Every error Steersman raises on purpose, as one tree.

::

    SteersmanError
    ├── InputError (ValueError)        an argument is wrong: a context, a number, a shape
    │   └── ActionError                an unknown or ineligible action
    ├── SpecError (ValueError)         a declared decision point is wrong: file, line, field
    ├── StateError (ValueError)        a policy state of another algorithm, shape or version
    │   └── MergeError                 a delta that was merged before, or does not fit
    ├── DataError (RuntimeError)       a data set is missing or unreadable, and where to get it
    ├── StoreError (RuntimeError)      the database does not start, answer, or fit this version
    │   ├── RefusedByStoreError        the store answers, but not this call
    │   └── FencedError                another learner took over; this one must stop
    ├── CorpusError (RuntimeError)     a corpus cannot be used or changed as asked
    │   └── MissingCorpusError         no such corpus, corpus snapshot or document
    ├── RegistryError (RuntimeError)   the registry of snapshots cannot be read or written
    │   ├── RaceError                  another publisher wrote first; read again, then repeat
    │   ├── SigningError               a signing key is missing, locked or not trusted
    │   └── SnapshotError              this snapshot cannot be published or loaded
    │       ├── MissingSnapshotError   there is no such version, or no longer
    │       ├── VerificationError      a signature, hash, size, number or name does not fit
    │       ├── StaleError             it was verified, but too long ago
    │       └── GuardError             the publish guard refused it; `reasons` says why
    ├── BackendError (RuntimeError)    a language model gave no usable answer
    │   ├── BackendUnavailableError    none in time, no connection, busy or broken: try later
    │   ├── BackendAnswerError         it refused the request, or what it sent is no completion
    │   └── BudgetError                it was not asked: what may be spent on it has ended
    ├── ClusterError (RuntimeError)    a Ray cluster does not answer, or gave its work up
    ├── RolloutError (RuntimeError)    a rollout cannot be started or moved
    │   └── ActionNotAllowedError      not legal in this status; the message names what is
    └── ServiceError (RuntimeError)    the service refused a request; `problem` says why
        ├── UnauthorizedError          the API key is missing, unknown or lacks the scope
        ├── NotFoundError              no such thing, or not yours
        ├── ConflictError              an idempotency key was used with another body
        ├── UnavailableError           no answer in time, after all tries
        └── QueueError                 the client's queue on disk cannot be used
            └── QueueFullError         it has no room left

A message says what was wrong, the value seen, the range allowed, and what to do next. Errors about
arguments are also ``ValueError``, so callers need not import this module to catch them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.wire import Problem

__all__ = [
    "ActionError",
    "ActionNotAllowedError",
    "BackendAnswerError",
    "BackendError",
    "BackendUnavailableError",
    "BudgetError",
    "ClusterError",
    "ConflictError",
    "CorpusError",
    "DataError",
    "FencedError",
    "GuardError",
    "InputError",
    "MergeError",
    "MissingCorpusError",
    "MissingSnapshotError",
    "NotFoundError",
    "QueueError",
    "QueueFullError",
    "RaceError",
    "RefusedByStoreError",
    "RegistryError",
    "RolloutError",
    "ServiceError",
    "SigningError",
    "SnapshotError",
    "SpecError",
    "StaleError",
    "StateError",
    "SteersmanError",
    "StoreError",
    "UnauthorizedError",
    "UnavailableError",
    "VerificationError",
]


class SteersmanError(Exception):
    """Base of every error raised on purpose by Steersman."""


class InputError(SteersmanError, ValueError):
    """An argument has a wrong value, type or shape; nothing was changed."""


class ActionError(InputError):
    """An action is unknown to the policy or not eligible for this request."""


class SpecError(SteersmanError, ValueError):
    """A declared decision point is wrong; the message names file, line, field and allowed range."""


class StateError(SteersmanError, ValueError):
    """A state belongs to another algorithm, version, shape or set of actions."""


class MergeError(StateError):
    """A delta was merged before, or was made by an incompatible policy."""


class DataError(SteersmanError, RuntimeError):
    """A data set is missing or unreadable; the message says where the original lives."""


class StoreError(SteersmanError, RuntimeError):
    """The database does not start, answer or fit; the message says what to check."""


class RefusedByStoreError(StoreError):
    """A store answers, but not this call: what is there is of another kind, or it has no room."""


class FencedError(StoreError):
    """Another learner holds this decision point now; what this one was writing was not written."""


class CorpusError(SteersmanError, RuntimeError):
    """A corpus cannot be used or changed as asked; the message says what stands in the way."""


class MissingCorpusError(CorpusError):
    """The tenant has no such corpus, corpus snapshot or document; another's is as absent."""


class RegistryError(SteersmanError, RuntimeError):
    """The registry of snapshots cannot be read or written; the message says what to check."""


class RaceError(RegistryError):
    """Another publisher wrote first: nothing of this one was published; read again and repeat."""


class SigningError(RegistryError):
    """A signing key is missing, cannot be opened, or is not one that the metadata trusts."""


class SnapshotError(RegistryError):
    """This snapshot cannot be published, described or loaded; others may be fine."""


class MissingSnapshotError(SnapshotError):
    """No such version was published for this decision point, or it was retracted or archived."""


class VerificationError(SnapshotError):
    """A signature, hash, size, version, number or name does not fit; nothing of it was used."""


class StaleError(SnapshotError):
    """What was verified, was verified longer ago than allowed; nothing of it is used any more."""


class GuardError(SnapshotError):
    """The publish guard refused a snapshot; nothing was published.

    Args:
        message: what was wrong, and what to do next.
        reasons: every rule that refused it, one sentence each.
    """

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = list(reasons)


class BackendError(SteersmanError, RuntimeError):
    """A language model gave no usable answer; the message says which, and what to check."""


class BackendUnavailableError(BackendError):
    """No answer in time, no connection, or a server that is busy or broken.

    Args:
        message: what was wrong, and what to do next.
        retry_after_s: when to try again, where it is known.
        asked: whether anything was sent; a server that failed just now is left alone for a while.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, asked: bool = True
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.asked = asked


class BackendAnswerError(BackendError):
    """The server refused the request, or what it sent is no completion.

    Args:
        message: what was wrong, and what to do next.
        of_prompt: whether it is this prompt, such as one too long, and not a key, an address or a
            model: another prompt may well be answered.
    """

    def __init__(self, message: str, *, of_prompt: bool = False) -> None:
        super().__init__(message)
        self.of_prompt = of_prompt


class BudgetError(BackendError):
    """The model was not asked: the calls or the money that may be spent on it have ended."""


class ClusterError(SteersmanError, RuntimeError):
    """A Ray cluster does not answer, does not fit, or gave up what it was to do."""


class RolloutError(SteersmanError, RuntimeError):
    """A rollout cannot be started or moved; the message says what stands in the way."""


class ActionNotAllowedError(RolloutError):
    """An action is not legal in the rollout's status; the message names those that are."""


class ServiceError(SteersmanError, RuntimeError):
    """The service refused a request, or the client could not reach it.

    Args:
        message: what was wrong, and what to do next.
        problem: what the service answered; None if it did not answer, or answered no problem.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class UnauthorizedError(ServiceError):
    """The API key is missing, unknown, expired or revoked, or lacks the scope."""


class NotFoundError(ServiceError):
    """There is no such thing, or it belongs to somebody else: the answer is the same."""


class ConflictError(ServiceError):
    """An idempotency key or event id was used before with another body."""


class UnavailableError(ServiceError):
    """No answer in time after all tries, or none were made because the service seems to be gone."""


class QueueError(ServiceError):
    """The client's queue on disk cannot be opened, read or written; nothing was queued."""


class QueueFullError(QueueError):
    """The client's queue on disk has no room; nothing was queued."""
