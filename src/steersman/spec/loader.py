"""Loader of decision points that reports all errors at once."""

from __future__ import annotations

from functools import lru_cache
from os import PathLike

from pydantic import ValidationError, create_model

from steersman.errors import SpecError
from steersman.spec.base import Declared, as_validation_error
from steersman.spec.crosschecks import crosscheck
from steersman.spec.document import Document, parse
from steersman.spec.point import DecisionPoint
from steersman.spec.privacy import Privacy
from steersman.spec.validation_errors import Complaint, complaints, dotted, report
from steersman.spec.yaml_files import text_of

_KEPT = 256
"""Size of the cache: services and learners read the same declarations many times."""
_SHORT = 1 << 14
"""Longest cached declaration, in characters, to limit the memory of the cache."""


def load(path: str | PathLike[str]) -> DecisionPoint:
    """Return the decision point declared in a YAML file.

    Args:
        path: UTF-8 file, at most 256 KiB.

    Returns:
        The validated declaration with defaults.

    Raises:
        SpecError: invalid path, unreadable file, or invalid declaration. The message lists all
            errors, one per line: ``file:line: field: what; got VALUE; allowed RANGE; what to do``.
    """
    _check_path(path)
    return loads(text_of(path), source=str(path))


def loads(text: str, *, source: str = "<string>") -> DecisionPoint:
    """Return the decision point declared in ``text``.

    Args:
        text: YAML 1.2, at most 256 KiB.

    Returns:
        The validated declaration with defaults.

    Raises:
        SpecError: as for `load`.

    >>> point = loads('''
    ... format: 1
    ... skill: assistant
    ... decision: route
    ... actions: {kind: choice, names: [micro, planner]}
    ... policy: {algorithm: lin_ucb, alpha: 0.5}
    ... floor: 0.02
    ... fallback: {otherwise: planner}
    ... reward: {terms: {success: {weight: 1.0}}}
    ... ''')
    >>> point.policy.alpha, point.actions.names, point.learning.mode
    (0.5, ('micro', 'planner'), 'online')
    """
    _check_text(text, source)
    if len(text) > _SHORT:
        return _read(text, source)
    return _read_once(text, source).model_copy(deep=True)  # callers must not share mutable state


def privacy_of(text: str) -> Privacy | None:
    """Return the personal-data rules of a declaration whose policy may be unknown.

    A process without the distribution of a policy still has to scrub events by these rules.

    Returns:
        The rules; None if anything besides the policy is wrong.

    >>> print(privacy_of("format: 2"))
    None
    """
    try:
        document = parse(text, "declaration")
        return None if document.faults else DecisionPoint.model_validate(document.root).privacy
    except SpecError:
        return None
    except ValidationError as error:
        if any(fault["loc"][:1] != ("policy",) for fault in error.errors()):
            return None
    return Privacy.model_validate(document.root.get("privacy", {}))


def _read(text: str, source: str) -> DecisionPoint:
    document = parse(text, source)
    found = {Complaint(fault.line, dotted(fault.path), fault.text) for fault in document.faults}
    try:
        point = DecisionPoint.model_validate(document.root)
    except ValidationError as error:
        found |= complaints(error, document) | _disagreements(error, document)
    if found:
        raise SpecError(report(source, found))
    return point


_read_once = lru_cache(_KEPT)(_read)


def _check_path(value: object) -> None:
    if not isinstance(value, str | PathLike):
        message = (
            f"the path of a declaration is a {type(value).__name__}; allowed: str or Path; "
            "pass the path of a YAML file, or pass its text to loads"
        )
        raise SpecError(message)


def _check_text(value: object, source: str) -> None:
    if not isinstance(value, str):
        message = (
            f"{source}: the declaration is a {type(value).__name__}; allowed: YAML text (str); "
            "decode bytes, dump other values as YAML, or read a file with load"
        )
        raise SpecError(message)


def _disagreements(error: ValidationError, document: Document) -> set[Complaint]:
    """Cross-check the valid sections; the validator stops before it does so."""
    wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
    right = {
        name: (declared.annotation, declared)
        for name, declared in DecisionPoint.model_fields.items()
        if name not in wrong
    }
    given = {name: document.root[name] for name in right if name in document.root}
    # mypy cannot see through a mapping of field definitions.
    sections = create_model("Sections", __base__=Declared, **right)  # type: ignore[call-overload]
    problems = list(crosscheck(dict(sections.model_validate(given))))
    return complaints(as_validation_error("", problems), document) if problems else set()
