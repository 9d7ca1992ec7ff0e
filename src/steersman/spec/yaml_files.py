"""Reader of validated YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from steersman.errors import SpecError
from steersman.spec.document import MAX_BYTES, Document, parse
from steersman.spec.validation_errors import Complaint, complaints, dotted, report

if TYPE_CHECKING:
    from os import PathLike

    from steersman.spec.base import Declared

Model = TypeVar("Model", bound="Declared")


def read_declared(path: Path, model: type[Model]) -> tuple[Model, Document]:
    """Return the validated content of a YAML file, and the document with its lines.

    Raises:
        SpecError: unreadable file or invalid content. The message lists all errors, one per line:
            ``file:line: field: what; got VALUE; allowed RANGE; what to do``.
    """
    source = str(path)
    text = text_of(path)
    document = parse(text, source)
    found = {Complaint(fault.line, dotted(fault.path), fault.text) for fault in document.faults}
    try:
        declared = model.model_validate(document.root)
    except ValidationError as error:
        found |= complaints(error, document, model.model_json_schema())
    if found:
        raise SpecError(report(source, found))
    return declared, document


def text_of(path: str | PathLike[str]) -> str:
    """Return the text of a UTF-8 file of at most 256 KiB.

    Raises:
        SpecError: unreadable file, too large, or not UTF-8.
    """
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        message = f"{source}: cannot be read: {reason}; check path and permissions"
        raise SpecError(message) from None
    if len(content) > MAX_BYTES:
        message = f"{source}: too large: more than {MAX_BYTES:,} bytes; shorten it"
        raise SpecError(message)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got = content[error.start : error.start + 1].hex()
        message = f"{source}:{line}: byte 0x{got} is not UTF-8; save it as UTF-8"
        raise SpecError(message) from None
