"""Trace context of OpenTelemetry, if the application has that package."""

from __future__ import annotations

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # without the package no span exists whose context could be sent

    def trace_headers() -> dict[str, str]:
        """Return no headers."""
        return {}

else:
    _inject = TraceContextTextMapPropagator().inject

    def trace_headers() -> dict[str, str]:
        """Return the ``traceparent`` header inside a span, else nothing."""
        headers: dict[str, str] = {}
        _inject(headers)
        return headers
