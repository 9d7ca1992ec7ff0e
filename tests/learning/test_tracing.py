"""Learner spans: one per batch, and one in each learned trace."""

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from steersman.learning import learner as tracing
from tests.learning.world import decided, declared, happened, learn_all, rows, write

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
ASKED = "00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01"


@pytest.fixture
def exporter(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("steersman.learning"))
    yield exporter
    provider.shutdown()


async def test_a_batch_is_a_span_linked_to_its_causes(database, tenant, exporter):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0))
    await write(database, [one], [happened(one, {"success": 1.0}, traceparent=PARENT)])
    await learn_all(database)
    (update,) = await rows(database, tenant.id, "SELECT traceparent FROM update")
    assert update["traceparent"] == PARENT
    (batch,) = [span for span in exporter.get_finished_spans() if span.name == "learn"]
    assert [f"{link.context.trace_id:032x}" for link in batch.links] == [TRACE]
    assert batch.attributes["steersman.point"] == "search/depth"


async def test_the_traces_of_decision_and_outcome_show_that_it_was_learned(
    database, tenant, exporter
):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), traceparent=ASKED)
    await write(database, [one], [happened(one, {"success": 1.0}, traceparent=PARENT)])
    await learn_all(database)
    spans = exporter.get_finished_spans()
    (batch,) = [span for span in spans if span.name == "learn"]
    learned = [span for span in spans if span.name == "learned"]
    below = {
        f"00-{span.context.trace_id:032x}-{span.parent.span_id:016x}-01": span for span in learned
    }
    assert below.keys() == {PARENT, ASKED}
    for span in learned:
        assert [link.context.span_id for link in span.links] == [batch.context.span_id]
        assert span.start_time == batch.start_time
        assert span.attributes["steersman.point"] == "search/depth"


async def test_a_trace_that_was_not_sampled_is_told_nothing(database, tenant, exporter):
    row = await declared(database, tenant.id)
    one = decided(row, np.random.default_rng(0), traceparent=ASKED[:-2] + "00")
    await write(database, [one], [happened(one, {"success": 1.0})])
    await learn_all(database)
    assert [span.name for span in exporter.get_finished_spans()] == ["learn"]


def test_no_more_than_some_are_told(exporter):
    traceparents = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 701)]
    with tracing.batch_span("search/depth") as span:
        tracing.trace_learned(span, "search/depth", traceparents)
    names = [span.name for span in exporter.get_finished_spans()]
    assert names.count("learned") == 512
    assert len(span.links) == 32


@pytest.mark.parametrize("text", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_damaged_context_is_told_nothing(text, exporter):
    with tracing.batch_span("search/depth") as span:
        tracing.trace_learned(span, "search/depth", [text])
    assert [span.name for span in exporter.get_finished_spans()] == ["learn"]
    assert span.links == ()
