"""Tracing: the W3C context of a request, and spans if a provider is configured.

Without a provider only the header is parsed. A thread with a bounded queue exports spans, so that a
collector cannot delay a request.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from steersman.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Sized

    from steersman.db.decisions import DecisionRow
    from steersman.db.packed_events import PackedEvent

_FINISH_S = 3.0  # less than who stops us waits
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def parse_traceparent(header: bytes | None) -> str | None:
    """Return the trace context of a version-00 header, or None if it is missing or invalid.

    Returns:
        ``00-<trace>-<parent>-<flags>``.

    >>> parse_traceparent(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    >>> parse_traceparent(b"00-00000000000000000000000000000000-b7ad6b7169203331-01") is None
    True

    Source:
        W3C Trace Context, level 1, section 3.2.
    """
    if header is None:
        return None
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, parent, flags, more = match.groups()
    if (
        version == b"ff"
        or (version == b"00" and more)
        or not (int(trace_id, 16) and int(parent, 16))
    ):
        return None
    return f"00-{trace_id.decode()}-{parent.decode()}-{flags.decode()}"


class Tracing:
    """Recorder of spans; it does nothing if no provider is configured at its creation.

    >>> Tracing().enabled
    False
    """

    def __init__(self) -> None:
        provider = trace.get_tracer_provider()
        self.enabled = not isinstance(
            provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider
        )
        self._tracer = trace.get_tracer("steersman")

    @contextmanager
    def span(self, name: str, traceparent: str | None) -> Iterator[str | None]:
        """Record a span as a child of the caller's.

        Args:
            name: name of the span, for example ``POST /v1/decide``.
        """
        parent = trace.set_span_in_context(NonRecordingSpan(_context(traceparent)))
        with self._tracer.start_as_current_span(name, context=parent, kind=SpanKind.SERVER) as span:
            context = span.get_span_context()
            own = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            yield own if context.is_valid else traceparent

    def storing(self, rows: Sequence[DecisionRow | PackedEvent]) -> Callable[[Sized], None]:
        """Start a child span of the request's that lasts until rows are durable or refused."""
        parent = trace.set_span_in_context(NonRecordingSpan(_context(rows[0].traceparent)))
        attributes = {"steersman.rows": len(rows)}
        span = self._tracer.start_span("store", context=parent, attributes=attributes)

        def end(refused: Sized) -> None:
            span.set_attribute("steersman.refused", len(refused))
            span.end()

        return end


def configure_tracing(service: str = "steersman") -> Any:
    """Export spans to the collector at `OTEL_EXPORTER_OTLP_ENDPOINT`, if it is set.

    Returns:
        Provider for `finish_tracing`; None if no endpoint is set.

    Raises:
        StoreError: an endpoint is set, but the extra ``otel`` is not installed.

    >>> configure_tracing() is None
    True
    """
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    if find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        message = (
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but the exporter is not installed; install "
            "steersman[otel], or unset the variable"
        )
        raise StoreError(message)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 (an extra)
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME", service)
    resource = Resource.create({"service.name": name})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # see finish_tracing
    # What does not fit into the queue is dropped; a hanging collector costs a thread 5 s at most.
    processor = BatchSpanProcessor(OTLPSpanExporter(timeout=5), max_queue_size=4096)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return provider


def finish_tracing(provider: Any, *, within_s: float = _FINISH_S) -> bool:
    """Export the remaining spans within a time limit, so that a collector cannot delay shutdown.

    Args:
        provider: result of `configure_tracing`; None: do nothing.
        within_s: time limit in seconds; later spans are dropped.

    >>> finish_tracing(None)
    True
    """
    if provider is None:
        return True
    sending = Thread(target=provider.shutdown, name="spans", daemon=True)
    sending.start()
    sending.join(within_s)
    return not sending.is_alive()


def _context(traceparent: str | None) -> SpanContext:
    if traceparent is None:
        return trace.INVALID_SPAN_CONTEXT
    _, trace_id, parent, flags = traceparent.split("-")
    return SpanContext(
        int(trace_id, 16), int(parent, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
