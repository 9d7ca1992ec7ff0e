"""What must not be kept: personal data that is taken out of texts before anything is stored."""

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
    """What is taken out of texts before they are encoded, stored, signed or logged."""

    # The document says `with`, which is no name in Python.
    model_config = ConfigDict(serialize_by_alias=True)

    scrub: Annotated[
        tuple[Annotated[str, Field(json_schema_extra={"pattern": _KIND})], ...],
        Field(strict=False, max_length=16),
    ] = ()
    """Kinds of personal data: `email`, `phone`, `card`, `iban`, `ip`, and `custom:NAME` for a
    scrubber that is installed by that name. Empty: texts stay as they are."""
    how: Annotated[Literal["mask", "hash"], Field(alias="with")] = "mask"
    """`mask`: `[email]` takes its place. `hash`: `[email:…]` with a keyed hash, the same for the
    same value within a tenant."""
    fields: Identifiers | None = None
    """The text fields of the context this is done to; null for all of them. Bodies of events are
    scrubbed in any case."""

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
                "fields are named, and nothing is taken out of them",
                list(self.scrub),
                _ALLOWED,
                "name what is to be taken out, or remove fields",
            )
        if not self.scrub and self.how == "hash":
            what, advice = "nothing is hashed", "name what is to be taken out, or remove with"
            yield Problem(("scrub",), what, list(self.scrub), _ALLOWED, advice)
