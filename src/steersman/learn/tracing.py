"""Spans of the learner: one per batch, linked to the requests that caused it, if anyone listens."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_LINKS = 32
_tracer = trace.get_tracer("steersman.learn")


@contextmanager
def batch_span(name: str) -> Iterator[trace.Span]:
    """Record a batch as a span; without a configured provider this costs a microsecond.

    Args:
        name: of the decision point.

    Yields:
        The span, for `link`.

    >>> with batch_span("route/model") as span:
    ...     span.is_recording()
    False
    """
    with _tracer.start_as_current_span("learn", attributes={"steersman.point": name}) as span:
        yield span


def link(span: trace.Span, traceparents: Sequence[str]) -> None:
    """Link a batch to the requests whose events it learned from.

    Args:
        span: of the batch.
        traceparents: W3C trace contexts; at most 32 different ones are linked.

    >>> link(trace.INVALID_SPAN, ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
    """
    if not span.is_recording():
        return
    propagator = TraceContextTextMapPropagator()
    for traceparent in list(dict.fromkeys(traceparents))[:_MOST_LINKS]:
        context = propagator.extract({"traceparent": traceparent})
        cause = trace.get_current_span(context).get_span_context()
        if cause.is_valid:
            span.add_link(cause)
