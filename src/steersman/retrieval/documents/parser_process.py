"""Parser process: parses untrusted files with limited time and memory.

A few kilobytes of HTML or a PDF may need any amount of memory or time. A process can be killed, a
thread cannot.
"""

from __future__ import annotations

import subprocess
import sys
from threading import Event, Timer
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from steersman.errors import DataError
from steersman.retrieval.documents.parsed import Limits, ParsedFile, ParserRequest, ParserResponse
from steersman.retrieval.documents.parser_worker import LENGTH_BYTES, answer

if TYPE_CHECKING:
    from types import TracebackType

# Skip the __init__ of these packages: it would import indexes and the store, slowly.
_START = """
import sys
from importlib.util import find_spec, module_from_spec
for name in ("steersman.retrieval", "steersman.retrieval.documents"):
    sys.modules[name] = module_from_spec(find_spec(name))
from steersman.retrieval.documents.parser_worker import main
main()
"""
# Starting Python and importing may be slow on a busy machine; the file is not at fault.
_START_S = 30.0


class BoundedParser:
    """Parser in a separate process, which is replaced if it dies or hangs.

    Use it from one thread at a time. The process starts with the first file and ends with `close`.

    Args:
        limits: limits of time, memory, pages and text; None: `Limits()`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None

    def parse(self, kind: Literal["markdown", "html", "pdf"], data: bytes, name: str) -> ParsedFile:
        """Return the parsed file.

        Args:
            data: text in UTF-8, or PDF bytes.

        Raises:
            DataError: the file cannot be read, or exceeds a limit.
        """
        limits = self._limits
        work = ParserRequest(kind, data, limits.pages, limits.document_bytes, limits.parse_s)
        outcome = self._ask(msgspec.msgpack.encode(work), name)
        if outcome.parsed is None:
            raise DataError(f"{name} {outcome.refused}")
        return outcome.parsed

    def close(self) -> None:
        """Stop the process; it restarts when needed."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, work: bytes, name: str) -> ParserResponse:
        late = Event()
        seconds = self._limits.parse_s + _START_S * (self._process is None)
        try:
            process = self._process = self._process or self._start()
        except OSError as error:
            raise DataError(
                f"{name} was not parsed: cannot start the parser process: {error}"
            ) from error
        timer = Timer(seconds, _end, (process, late))
        timer.daemon = True
        timer.start()
        try:
            return self._exchange(process, work)
        except (EOFError, OSError) as error:
            self.close()
            raise DataError(f"{name} {self._why(late.is_set())}") from error
        finally:
            timer.cancel()

    def _exchange(self, process: subprocess.Popen[bytes], work: bytes) -> ParserResponse:
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        answer(process.stdin, work)
        length = int.from_bytes(_exactly(process.stdout.read(LENGTH_BYTES), LENGTH_BYTES), "big")
        # Four bytes per character of text, and the same again for headings.
        if length > 8 * self._limits.document_bytes + (1 << 20):
            raise EOFError
        return msgspec.msgpack.decode(
            _exactly(process.stdout.read(length), length), type=ParserResponse
        )

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own fixed command, no shell
            [sys.executable, "-P", "-c", _START, str(self._limits.parser_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _why(self, late: bool) -> str:  # noqa: FBT001 - the one fact it is about
        if late:
            return f"was not parsed within {self._limits.parse_s:g} s; split or omit it"
        return (
            f"made the parser exit (memory limit {self._limits.parser_bytes:,} bytes); "
            "split or omit it"
        )


def _end(process: subprocess.Popen[bytes], late: Event) -> None:
    late.set()
    process.kill()


def _exactly(found: bytes, length: int) -> bytes:
    if len(found) < length:
        raise EOFError
    return found
