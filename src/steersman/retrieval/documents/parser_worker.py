"""Worker program of `BoundedParser`; it may hang or die on an untrusted file.

It reads each `ParserRequest` from standard input and writes a `ParserResponse`, both in msgpack
after their length in eight bytes. It exits when the input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import msgspec

from steersman.errors.install_hint import how_to_install
from steersman.retrieval.documents.html import parse_html
from steersman.retrieval.documents.markdown import parse_markdown
from steersman.retrieval.documents.parsed import ParsedFile, ParserRequest, ParserResponse, Refusal
from steersman.retrieval.documents.pdf import parse_pdf
from steersman.retrieval.documents.text_encoding import storable

LENGTH_BYTES = 8
_STATM = Path("/proc/self/statm")


def main() -> None:
    """Parse until the input ends."""
    _bound_memory(int(sys.argv[1]))
    while True:
        length = sys.stdin.buffer.read(LENGTH_BYTES)
        if len(length) < LENGTH_BYTES:
            return
        work = msgspec.msgpack.decode(
            sys.stdin.buffer.read(int.from_bytes(length, "big")), type=ParserRequest
        )
        _bound_time(work.parse_s)
        answer(sys.stdout.buffer, msgspec.msgpack.encode(_outcome(work)))


def answer(stream: IO[bytes], message: bytes) -> None:
    """Write the length of a message and the message."""
    stream.write(len(message).to_bytes(LENGTH_BYTES, "big"))
    stream.write(message)
    stream.flush()


def _outcome(work: ParserRequest) -> ParserResponse:
    try:
        return ParserResponse(parsed=_parse(work))
    except Refusal as refusal:
        return ParserResponse(refused=str(refusal))
    except ImportError as missing:
        message = f"needs the package {missing.name}; install it with: "
        return ParserResponse(refused=message + how_to_install("rag"))
    except MemoryError:
        return ParserResponse(refused="needs more memory than the parser limit; split it")
    except Exception as error:  # noqa: BLE001 - a parser may raise any error for a broken file
        return ParserResponse(
            refused=f"is broken ({type(error).__name__}: {str(error)[:200]}); repair it"
        )


def _parse(work: ParserRequest) -> ParsedFile:
    if work.kind == "pdf":
        parsed = parse_pdf(work.data, work.pages, work.text_bytes)
    else:
        text = work.data.decode()
        parsed = parse_html(text) if work.kind == "html" else parse_markdown(text)
    if len(parsed.text) > work.text_bytes:
        raise Refusal(
            f"has more than {work.text_bytes:,} characters of text, the maximum; split it"
        )
    return _storable(parsed)


def _storable(parsed: ParsedFile) -> ParsedFile:
    # Text from PDF fonts may not be storable; replacing one character by one keeps offsets.
    parsed.text, replaced = storable(parsed.text)
    parsed.title = storable(parsed.title)[0]
    parsed.sections = [
        (start, level, storable(title)[0]) for start, level, title in parsed.sections
    ]
    if replaced:
        parsed.notes["replaced"] = replaced
    return parsed


def _bound_time(parse_s: float) -> None:
    # The parent kills a late worker. If the parent has died, this limit does.
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + parse_s) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _bound_memory(parser_bytes: int) -> None:
    # macOS accepts this limit but does not enforce it.
    if _STATM.exists():
        import resource  # noqa: PLC0415 - not on every system; where there is /proc, it is

        held = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + parser_bytes, held + parser_bytes))


if __name__ == "__main__":
    main()
