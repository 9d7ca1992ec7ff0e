"""Tree of all errors that Steersman raises.

::

    SteersmanError
    ├── InputError (ValueError)        an argument has a wrong value, type or shape
    │   └── ActionError                an unknown or ineligible action
    ├── SpecError (ValueError)         a declaration is invalid: file, line, field
    ├── StateError (ValueError)        a policy state has another algorithm, shape or version
    │   └── MergeError                 a delta was already merged, or does not fit
    ├── DataError (RuntimeError)       a data set is missing or unreadable
    ├── StoreError (RuntimeError)      the database does not start, answer, or fit this version
    │   ├── RefusedByStoreError        the store refuses this call
    │   └── FencedError                another learner took over; this one must stop
    ├── CorpusError (RuntimeError)     a corpus cannot be used or changed
    │   └── MissingCorpusError         corpus, corpus snapshot or document not found
    ├── RegistryError (RuntimeError)   the registry of snapshots cannot be read or written
    │   ├── RaceError                  another publisher wrote first; read again and retry
    │   ├── SigningError               a signing key is missing, locked or not trusted
    │   └── SnapshotError              a snapshot cannot be published or loaded
    │       ├── MissingSnapshotError   snapshot version not found, retracted or archived
    │       ├── VerificationError      a signature, hash, size, version or name does not match
    │       ├── StaleError             the last verification is too old
    │       └── GuardError             the publish guard refused the snapshot; see `reasons`
    ├── BackendError (RuntimeError)    a language model gave no usable answer
    │   ├── BackendUnavailableError    timeout, no connection, or a busy or failing server
    │   ├── BackendAnswerError         the server refused the request or sent no completion
    │   └── BudgetError                the budget for model calls is used up
    ├── ClusterError (RuntimeError)    a Ray cluster does not answer, or failed
    └── RolloutError (RuntimeError)    a rollout cannot be started or moved
        └── ActionNotAllowedError      the action is not allowed in this status

A message says what is wrong, the value, what is allowed, and what to do next. Errors about
arguments are also ``ValueError``, so callers can catch them without this module. The client has a
separate tree, in `steersman_client.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ActionError",
    "ActionNotAllowedError",
    "BackendAnswerError",
    "BackendError",
    "BackendUnavailableError",
    "BudgetError",
    "ClusterError",
    "CorpusError",
    "DataError",
    "FencedError",
    "GuardError",
    "InputError",
    "MergeError",
    "MissingCorpusError",
    "MissingSnapshotError",
    "RaceError",
    "RefusedByStoreError",
    "RegistryError",
    "RolloutError",
    "SigningError",
    "SnapshotError",
    "SpecError",
    "StaleError",
    "StateError",
    "SteersmanError",
    "StoreError",
    "VerificationError",
]


class SteersmanError(Exception):
    """Base class of all Steersman errors."""


class InputError(SteersmanError, ValueError):
    """An argument has a wrong value, type or shape. Nothing was changed."""


class ActionError(InputError):
    """An action is unknown to the policy or not eligible for this request."""


class SpecError(SteersmanError, ValueError):
    """A declaration is invalid. The message names file, line, field and allowed values."""


class StateError(SteersmanError, ValueError):
    """A state has another algorithm, version, shape or set of actions."""


class MergeError(StateError):
    """A delta was already merged, or comes from an incompatible policy."""


class DataError(SteersmanError, RuntimeError):
    """A data set is missing or unreadable. The message says where to get it."""


class StoreError(SteersmanError, RuntimeError):
    """The database does not start, answer or fit this version."""


class RefusedByStoreError(StoreError):
    """The store refuses a call: existing data has another kind, or the store is full."""


class FencedError(StoreError):
    """Another learner took over this decision point. The write of this learner was refused."""


class CorpusError(SteersmanError, RuntimeError):
    """A corpus cannot be used or changed. The message says why."""


class MissingCorpusError(CorpusError):
    """The tenant has no such corpus, corpus snapshot or document. Another tenant may have one."""


class RegistryError(SteersmanError, RuntimeError):
    """The registry of snapshots cannot be read or written."""


class RaceError(RegistryError):
    """Another publisher wrote first. Nothing was published; read again and retry."""


class SigningError(RegistryError):
    """A signing key is missing, cannot be opened, or is not trusted by the metadata."""


class SnapshotError(RegistryError):
    """A snapshot cannot be published, described or loaded."""


class MissingSnapshotError(SnapshotError):
    """The version of this decision point was not published, or was retracted or archived."""


class VerificationError(SnapshotError):
    """A signature, hash, size, version or name does not match. The data was not used."""


class StaleError(SnapshotError):
    """The last verification is older than allowed. The data is not used any more."""


class GuardError(SnapshotError):
    """The publish guard refused a snapshot. Nothing was published.

    Args:
        message: what is wrong, and what to do next.
        reasons: one sentence per rule that refused the snapshot.
    """

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = list(reasons)


class BackendError(SteersmanError, RuntimeError):
    """A language model gave no usable answer. The message names the model."""


class BackendUnavailableError(BackendError):
    """Timeout, no connection, or a busy or failing server.

    Args:
        message: what is wrong, and what to do next.
        retry_after_s: seconds to wait before a retry. None: unknown.
        asked: whether a request was sent. After a failure the client pauses for some time.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, asked: bool = True
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.asked = asked


class BackendAnswerError(BackendError):
    """The server refused the request, or did not send a completion.

    Args:
        message: what is wrong, and what to do next.
        of_prompt: whether the prompt is the cause, for example a prompt that is too long. Another
            prompt may then succeed.
    """

    def __init__(self, message: str, *, of_prompt: bool = False) -> None:
        super().__init__(message)
        self.of_prompt = of_prompt


class BudgetError(BackendError):
    """The budget for calls or money is used up. The model was not called."""


class ClusterError(SteersmanError, RuntimeError):
    """A Ray cluster does not answer, does not fit, or failed."""


class RolloutError(SteersmanError, RuntimeError):
    """A rollout cannot be started or moved. The message says why."""


class ActionNotAllowedError(RolloutError):
    """An action is not allowed in the status of the rollout. The message names allowed actions."""
