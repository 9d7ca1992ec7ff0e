"""Declaration of personal data that is removed from texts before they are stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field

from steersman.spec.base import Declared, Identifiers, Problem, nearest, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("email", "phone", "card", "iban", "ip")
CUSTOM = "custom:"
_KIND = rf"^({'|'.join(KINDS)}|{CUSTOM}[A-Za-z]\w{{0,63}})$"
_ALLOWED = f"{', '.join(KINDS)}, {CUSTOM}NAME"


class Privacy(Declared):
    """Personal data that is removed from texts before they are encoded, stored or logged."""

    # The YAML key is `with`, which is a Python keyword.
    model_config = ConfigDict(serialize_by_alias=True)

    scrub: Annotated[
        tuple[Annotated[str, Field(json_schema_extra={"pattern": _KIND})], ...],
        Field(strict=False, max_length=16),
    ] = ()
    """Kinds of personal data to remove: `email`, `phone`, `card`, `iban`, `ip`, and `custom:NAME`
    for an installed scrubber of that name. Empty: texts stay unchanged."""
    how: Annotated[Literal["mask", "hash"], Field(alias="with")] = "mask"
    """`mask`: replace by `[email]`. `hash`: replace by `[email:…]` with a keyed hash; equal values
    of one tenant have equal hashes."""
    fields: Identifiers | None = None
    """Text fields of the context to scrub. null: all text fields. Event bodies are always
    scrubbed."""

    def _problems(self) -> Iterator[Problem]:
        for place, kind in enumerate(self.scrub):
            if not re.fullmatch(_KIND, kind, re.ASCII):
                advice = nearest(kind, list(KINDS))
                yield Problem(("scrub", place), "unknown kind", kind, _ALLOWED, advice)
        for place, kind in repeated(self.scrub):
            allowed = "each kind once"
            yield Problem(("scrub", place), "named twice", kind, allowed, "remove one")
        for place, name in repeated(self.fields or ()):
            allowed = "each field once"
            yield Problem(("fields", place), "named twice", name, allowed, "remove one")
        if not self.scrub and self.fields is not None:
            yield Problem(
                ("scrub",),
                "fields is set but scrub is empty",
                list(self.scrub),
                _ALLOWED,
                "add kinds to scrub, or remove fields",
            )
        if not self.scrub and self.how == "hash":
            what, advice = (
                "with: hash is set but scrub is empty",
                "add kinds to scrub, or remove with",
            )
            yield Problem(("scrub",), what, list(self.scrub), _ALLOWED, advice)
