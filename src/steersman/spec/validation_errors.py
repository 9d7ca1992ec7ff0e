"""Validation errors as lines people can act on: where, what, the value, what is allowed, advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.spec.base import MOST_ADVISED, UNADVISED, nearest
from steersman.spec.schema import names_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError

    from steersman.spec.document import Document, Path

MAX_TOLD = 100
_TAG_KEYS = ("type", "kind", "algorithm")
_OWN_TAGS = {"#name", "#parts", "#drop", "#value"}  # of unions without a discriminator field,
_TAGGED = {"action", "otherwise", "missing"}  # used in these fields
_MOST_SHOWN = 80

# Error type -> what is wrong, what is allowed, what to do. Braces are filled from the error.
_WORDING: dict[str, tuple[str, str, str]] = {
    "missing": ("required field is missing", "a value", "add it"),
    "greater_than": ("too small", "above {gt}", "raise it"),
    "greater_than_equal": ("too small", "{ge} or more", "raise it"),
    "less_than": ("too large", "below {lt}", "lower it"),
    "less_than_equal": ("too large", "{le} or less", "lower it"),
    "finite_number": ("not a finite number", "a finite number", "write a number"),
    "float_type": ("wrong type", "a number", "write a number, without quotes"),
    "int_type": ("wrong type", "a whole number", "write a whole number, without quotes"),
    "bool_type": ("wrong type", "true or false", "write true or false"),
    "string_type": ("wrong type", "text", "write text, in quotes if necessary"),
    "tuple_type": ("wrong type", "a list", "write a list such as [a, b]"),
    "dict_type": ("wrong type", "a mapping", "write name: value pairs"),
    "model_type": ("wrong type", "a mapping", "write name: value pairs"),
    "model_attributes_type": ("wrong type", "a mapping", "write name: value pairs"),
    "too_short": ("too few entries", "{min_length} or more", "add some"),
    "too_long": ("too many entries", "at most {max_length}", "remove some"),
    "string_too_long": ("too long", "at most {max_length} characters", "shorten it"),
    "literal_error": ("unknown choice", "{expected}", "use one of these"),
    "union_tag_invalid": ("unknown choice", "{expected_tags}", "use one of these"),
    "union_tag_not_found": ("required field is missing", "a {discriminator}", "add it"),
}
# Text in a regex pattern -> wording; the first match counts.
_PATTERNS = {
    "_": (
        "not a valid name",
        "a letter, then letters, digits and _, at most 64 characters",
        "rename it",
    ),
    "\\u3000": (
        "not a valid name",
        "1 to 200 printable, visible characters without white space at the ends",
        "rename it",
    ),
    "": ("not a valid name", "1 to 200 printable, visible characters", "rename it"),
}


class Complaint(NamedTuple):
    """One error in a document."""

    line: int
    path: str
    text: str


def complaints(
    error: ValidationError, document: Document, schema: dict[str, Any] | None = None
) -> set[Complaint]:
    """Return the validator's errors with their lines in the document.

    `schema` defaults to the JSON Schema of a decision point.
    """
    found = set()
    for place, details in enumerate(error.errors(include_url=False)):
        complaint = _complaint(details, document, schema, advised=place < MOST_ADVISED)
        # pydantic also reports a list with wrong entries as too short; the entries are enough.
        entries = details["type"] == "too_short" and len(details["input"])
        if not entries or entries < details["ctx"]["min_length"]:
            found.add(complaint)
    return found


def report(source: str, found: Iterable[Complaint]) -> str:
    """Return the message that lists the first 100 errors in the order of the file."""
    ordered = sorted(found)
    lines = [f"{source}:{line}: {path}: {text}" for line, path, text in ordered[:MAX_TOLD]]
    if len(ordered) > MAX_TOLD:
        lines.append(f"{source}: and {len(ordered) - MAX_TOLD} more; correct these first")
    return "\n".join(lines)


def dotted(path: Path) -> str:
    """Return a path as text: ``actions.names[2]``.

    Keys come from the document. Unprintable characters are escaped, so that a key cannot forge a
    line or control a terminal. Each key is cut to 80 characters.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{_plain(part)}" if text else _plain(part)
    return text or "(top)"


def _plain(key: str) -> str:

    return _cut("".join(sign if sign.isprintable() else _escaped(sign) for sign in key[:81]))


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def _complaint(
    details: Mapping[str, Any], document: Document, schema: dict[str, Any] | None, *, advised: bool
) -> Complaint:
    path = _document_path(details["loc"], details["type"], document.root)
    if details["type"].startswith("union_tag"):
        path = (*path, details["ctx"]["discriminator"].strip("'"))
    what, allowed, advice = _explain(details, path, document, schema, advised=advised)
    absent = what == "required field is missing"
    got = "" if absent else f"got {_show(_value_at(path, document.root, details['input']))}; "
    text = f"{what}; {got}allowed {allowed}; {advice}"
    return Complaint(document.line(path), dotted(path), text)


def _explain(
    details: Mapping[str, Any],
    path: Path,
    document: Document,
    schema: dict[str, Any] | None,
    *,
    advised: bool,
) -> tuple[str, str, str]:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "declared":
        return context["what"], context["allowed"], context["advice"]
    if kind == "extra_forbidden":
        known = names_at(path[:-1], document.root, schema)
        advice = nearest(str(path[-1]), known) if advised else UNADVISED
        return "unknown field", ", ".join(known), advice
    if kind == "string_pattern_mismatch":
        return next(said for part, said in _PATTERNS.items() if part in context["pattern"])
    if kind in _WORDING:
        what, allowed, advice = (part.format(**context) for part in _WORDING[kind])
        return what, allowed, advice
    return str(details["msg"]), "see the reference", "correct it"


def _document_path(loc: tuple[str | int, ...], kind: str, root: object) -> Path:
    """Return the validator's location without the union tags that pydantic adds."""
    path: list[str | int] = []
    here = root
    skipped = False
    for place, part in enumerate(loc):
        after = loc[place + 1] if place + 1 < len(loc) else None
        names_field = after is None and kind in ("missing", "extra_forbidden")
        if not skipped and not names_field and _is_tag(part, here, path, after):
            skipped = True
            continue
        # pydantic reports an invalid key under this extra name.
        if part == "[key]" and not _is_key(part, here):
            continue
        path.append(part)
        here = _child(here, part)
        skipped = False
    return tuple(path)


def _is_tag(part: str | int, here: object, path: list[str | int], after: str | int | None) -> bool:
    if part in _OWN_TAGS and (not _is_key(part, here) or _TAGGED.intersection(path[-1:])):
        return True
    if not isinstance(here, dict) or all(here.get(key) != part for key in _TAG_KEYS):
        return False
    # A rules policy also has a field `rules`; there, as opposed to here, an index follows.
    return part not in here or isinstance(after, str)


def _is_key(part: str | int, here: object) -> bool:
    return isinstance(here, dict) and part in here


def _child(here: object, part: str | int) -> object:
    if isinstance(here, dict):
        return here.get(part)
    if isinstance(here, list | tuple) and isinstance(part, int) and part < len(here):
        return here[part]
    return None


def _value_at(path: Path, root: object, otherwise: object) -> object:
    here = root
    for part in path:
        here = _child(here, part)
    return otherwise if here is None else here


def _show(value: object) -> str:
    text = repr(list(value)) if isinstance(value, tuple) else repr(value)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
