"""The process in which files of strangers are parsed: it may grow, hang or die, and is replaced.

Reads one `Work` after another from its standard input and answers each with an `Outcome`, both in
msgpack behind their length in eight bytes. It ends with its input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import msgspec

from steersman.errors.install_hint import how_to_install
from steersman.retrieval.documents.html import parse_html
from steersman.retrieval.documents.markdown import parse_markdown
from steersman.retrieval.documents.parsed import Outcome, ParsedFile, Refusal, Work
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
            sys.stdin.buffer.read(int.from_bytes(length, "big")), type=Work
        )
        _bound_time(work.parse_s)
        answer(sys.stdout.buffer, msgspec.msgpack.encode(_outcome(work)))


def answer(stream: IO[bytes], message: bytes) -> None:
    """Write a message behind its length.

    Args:
        message: any bytes.
    """
    stream.write(len(message).to_bytes(LENGTH_BYTES, "big"))
    stream.write(message)
    stream.flush()


def _outcome(work: Work) -> Outcome:
    try:
        return Outcome(parsed=_parse(work))
    except Refusal as refusal:
        return Outcome(refused=str(refusal))
    except ImportError as missing:
        message = f"needs the package {missing.name}; install it with: "
        return Outcome(refused=message + how_to_install("rag"))
    except MemoryError:
        return Outcome(refused="needs more memory than the parser limit; split it")
    except Exception as error:  # noqa: BLE001 - a parser may raise anything at a broken file
        return Outcome(refused=f"is broken ({type(error).__name__}: {str(error)[:200]}); repair it")


def _parse(work: Work) -> ParsedFile:
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
    # What a PDF's fonts make up need not be: one character for one keeps offsets.
    parsed.text, replaced = storable(parsed.text)
    parsed.title = storable(parsed.title)[0]
    parsed.sections = [
        (start, level, storable(title)[0]) for start, level, title in parsed.sections
    ]
    if replaced:
        parsed.notes["replaced"] = replaced
    return parsed


def _bound_time(parse_s: float) -> None:
    # Who asked ends this process when it is late, unless it was ended itself; the system then does.
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + parse_s) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _bound_memory(parser_bytes: int) -> None:
    # macOS takes such a limit and does not hold to it.
    if _STATM.exists():
        import resource  # noqa: PLC0415 - not on every system; where there is /proc, it is

        held = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + parser_bytes, held + parser_bytes))


if __name__ == "__main__":
    main()
