"""The learner's spans: one per batch, linked to the requests whose outcomes it learned."""

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from steersman.learn import tracing
from tests.learn.world import decided, declared, happened, learn_all, rows, write

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def test_a_batch_is_a_span_linked_to_its_causes(database, tenant, monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("steersman.learn"))
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 1.0}, traceparent=PARENT)])
    await learn_all(database)
    (update,) = await rows(database, tenant.id, "SELECT traceparent FROM update")
    assert update["traceparent"] == PARENT
    links = [link for span in exporter.get_finished_spans() for link in span.links]
    assert [f"{link.context.trace_id:032x}" for link in links] == [TRACE]
    (span,) = [span for span in exporter.get_finished_spans() if span.links]
    assert span.attributes["steersman.point"] == "search/depth"
    provider.shutdown()


@pytest.mark.parametrize("text", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_damaged_context_is_no_link(text):
    provider = TracerProvider()
    with provider.get_tracer("test").start_as_current_span("learn") as span:
        tracing.link(span, [text])
    assert span.links == ()
    provider.shutdown()
