"""Spans of the learner, if anyone listens: one for each batch, and one in each trace it touches."""

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
_tracer = trace.get_tracer("steersman.learn")


@contextmanager
def batch_span(name: str) -> Iterator[trace.Span]:
    """Record a batch as a span; without a configured provider this costs a microsecond.

    Args:
        name: of the decision point.

    Yields:
        The span, for `tell`.

    >>> with batch_span("route/model") as span:
    ...     span.is_recording()
    False
    """
    with _tracer.start_as_current_span("learn", attributes={_POINT: name}) as span:
        yield span


def tell(span: trace.Span, name: str, traceparents: Sequence[str]) -> None:
    """Tell the traces of requests that what they decided or reported was learned.

    Each gets a span ``learned`` below the request, as long as the batch took and linked to it, so
    that one trace shows a decision from its request to what was learned of it. Where a trace was
    not sampled, neither is this.

    Args:
        span: of the batch, which is linked to the first 32 of them.
        name: of the decision point.
        traceparents: W3C trace contexts, each once; at most 512 are told.

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
            start_time=getattr(span, "start_time", None),  # the interface alone does not tell it
        ).end()
