"""OpenTelemetry spans of the learner."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_LINKS = 32
_MOST_TOLD = 512
_POINT = "steersman.point"
_tracer = trace.get_tracer("steersman.learning")


@contextmanager
def batch_span(name: str) -> Iterator[trace.Span]:
    """Record a batch as a span; without a provider this costs about a microsecond.

    >>> with batch_span("route/model") as span:
    ...     span.is_recording()
    False
    """
    with _tracer.start_as_current_span("learn", attributes={_POINT: name}) as span:
        yield span


def tell(span: trace.Span, name: str, traceparents: Sequence[str]) -> None:
    """Add a span ``learned`` to the traces of the learned decisions and events.

    The span lasts as long as the batch and links to it, so one trace shows a decision from request
    to learning. Traces that were not sampled get no span.

    `span`: span of the batch, which links to the first 32 traces.
    `traceparents`: distinct W3C trace contexts; at most 512 are used.

    >>> tell(trace.INVALID_SPAN, "a/b", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
    """
    if not span.is_recording():
        return
    propagator = TraceContextTextMapPropagator()
    batch = trace.Link(span.get_span_context())
    for traceparent in traceparents[:_MOST_TOLD]:
        context = propagator.extract({"traceparent": traceparent})
        cause = trace.get_current_span(context).get_span_context()
        if not cause.is_valid:
            continue
        if len(getattr(span, "links", ())) < _MOST_LINKS:
            span.add_link(cause)
        _tracer.start_span(
            "learned",
            context,
            attributes={_POINT: name},
            links=[batch],
            start_time=getattr(span, "start_time", None),  # the API does not expose it
        ).end()
