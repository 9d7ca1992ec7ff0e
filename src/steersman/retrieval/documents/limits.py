"""How much reading may take: bytes, pages, seconds and memory, whatever a file claims to be."""

from __future__ import annotations

from dataclasses import dataclass, fields

from steersman.errors import InputError

_LONGEST_S = 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps that hold before memory is taken; what goes beyond one is refused, never cut off.

    Args:
        document_bytes: of one document, packed or unpacked, and of its text; ≥ 1.
        total_bytes: of all that one call reads, unpacked; ≥ 1.
        documents: that one call may return, and files of a folder; ≥ 1.
        pages: of one PDF; ≥ 1.
        parse_s: seconds that the parser may take for one document, > 0 and at most 86,400.
        parser_bytes: memory that the parser may take (on Linux; elsewhere nothing bounds it),
            ≥ 268,435,456.

    Raises:
        InputError: a value is out of range.
    """

    document_bytes: int = 64 << 20
    total_bytes: int = 1 << 30
    documents: int = 1_000_000
    pages: int = 5_000
    parse_s: float = 60.0
    parser_bytes: int = 2 << 30

    def __post_init__(self) -> None:
        least = {"parser_bytes": 256 << 20}
        for name in (field.name for field in fields(self)):
            value, floor = getattr(self, name), least.get(name, 1)
            # Written so that NaN is refused too.
            if name == "parse_s" and not 0 < value <= _LONGEST_S:
                message = f"parse_s is {value!r}; allowed: above 0, at most {_LONGEST_S:,}"
                raise InputError(message)
            if name != "parse_s" and not value >= floor:
                raise InputError(f"{name} is {value!r}; the minimum is {floor:,}")
