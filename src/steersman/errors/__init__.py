"""Every error Steersman raises on purpose, as one tree.

::

    SteersmanError
    ├── InputError (ValueError)        an argument is wrong: a context, a number, a shape
    │   └── ActionError                an unknown or ineligible action
    ├── SpecError (ValueError)         a declared decision point is wrong: file, line, field
    ├── StateError (ValueError)        a policy state of another algorithm, shape or version
    │   └── MergeError                 a delta that was merged before, or does not fit
    └── DataError (RuntimeError)       a data set is missing or unreadable, and where to get it

A message says what was wrong, the value seen, the range allowed, and what to do next. Errors about
arguments are also ``ValueError``, so callers need not import this module to catch them.
"""

from __future__ import annotations

__all__ = [
    "ActionError",
    "DataError",
    "InputError",
    "MergeError",
    "SpecError",
    "StateError",
    "SteersmanError",
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
