"""Reading any checked YAML file: what is shipped, or what a person wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from steersman.errors import SpecError
from steersman.spec.complaints import Complaint, complaints, dotted, report
from steersman.spec.document import MAX_BYTES, Document, parse

if TYPE_CHECKING:
    from os import PathLike

    from steersman.spec.base import Declared

_PACKAGED = Path(__file__).parents[1] / "configs"
_CHECKOUT = Path(__file__).parents[3] / "configs"
Model = TypeVar("Model", bound="Declared")


def read_declared(path: Path, model: type[Model]) -> tuple[Model, Document]:
    """Return what a YAML file declares, and the document it was read from.

    Args:
        path: UTF-8, at most 256 KiB.
        model: what it has to declare.

    Returns:
        The checked declaration; the document knows the lines of its fields.

    Raises:
        SpecError: the file cannot be read, or what it says is wrong; all problems are listed, one a
            line: ``file:line: field: what; got VALUE; allowed RANGE; what to do``.
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
    """Return what is written in a file.

    Args:
        path: UTF-8, at most 256 KiB.

    Raises:
        SpecError: it cannot be read, is larger, or is no UTF-8.
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
        message = f"{source}: more than {MAX_BYTES:,} bytes; this is no declaration"
        raise SpecError(message)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got = content[error.start : error.start + 1].hex()
        message = f"{source}:{line}: byte 0x{got} is not UTF-8; save it as UTF-8"
        raise SpecError(message) from None


def shipped(name: str) -> Path:
    """Return a file of the shipped configuration, in the package or in a checkout.

    Args:
        name: its place within ``configs``.

    >>> shipped("assistant/route.yaml").name
    'route.yaml'
    """
    return (_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT) / name
