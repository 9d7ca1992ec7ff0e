"""Liveness, readiness and metrics, and who may see them."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from steersman.api.routes.health import Health
from steersman.api.service import Settings
from steersman.platform.http.messages import Request
from steersman.platform.telemetry.exposition import Exchange, Family, render
from steersman.serving.metrics import Metrics
from steersman.wire import Refused

DECIDE = {"skill": "search", "decision": "depth", "context": {}}


def values(text: bytes) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = [f"{name}={value}" for name, value in sorted(sample.labels.items())]
            found[sample.name, *labels] = sample.value
    return found


async def test_ready_once_replicas_follow_the_store(serving) -> None:
    async with serving() as s:
        assert (await s.ask("GET", "/healthz", key=None)).body == {"alive": True}
        await s.until(lambda: s.service.replicas.refreshed_at > 0)
        assert (await s.ask("GET", "/readyz", key=None)).body == {"ready": True}
        s.service.draining = True
        stopping = await s.ask("GET", "/readyz", key=None)
        assert stopping.status == 503
        assert "stopping" in stopping.body["detail"]
        s.service.draining = False
        s.service.breakers["readiness"].state = "open"
        s.service.breakers["readiness"]._until = float("inf")
        away = await s.ask("GET", "/readyz", key=None)
        assert away.status == 503
        assert "store" in away.body["detail"]


async def test_metrics_tell_what_happened_and_name_no_tenant(serving, tenant) -> None:
    async with serving() as s:
        decided = await s.ask("POST", "/v1/decide", DECIDE)
        await s.ask("POST", "/v1/decide", {"requests": [DECIDE, {**DECIDE, "skill": "no"}]})
        event = {"event_id": "e", "decision_id": decided.body["decision_id"]}
        await s.ask("POST", "/v1/task_result", event)
        await s.ask("POST", "/v1/task_result", event)
        await s.ask("GET", "/unknown/path/of/somebody")
        answer = await s.ask("GET", "/metrics", key=None)
        assert answer.headers["content-type"].startswith("text/plain")
        found = values(answer.body)
        point = ("degraded=false", "logged=true", "point=depth", "process=0", "skill=search")
        assert found["steersman_decisions_total", *point] == 2
        for status in ("stored", "replayed"):
            labels = ("process=0", f"status={status}", "type=task_result")
            assert found["steersman_events_total", *labels] == 1
        route = ("process=0", "route=/v1/decide")
        assert found["steersman_http_seconds_count", *route] == 2
        assert found["steersman_http_seconds_bucket", "le=+Inf", *route] == 2
        unmatched = ("process=0", "route=unmatched", "status=404")
        assert found["steersman_http_answers_total", *unmatched] == 1
        assert found["steersman_flush_rows_count", "kind=decisions", "process=0"] >= 2
        assert found["steersman_guardian_state", "process=0"] == 0
        assert found["steersman_breaker_open", "breaker=keys", "process=0"] == 0
        assert found["process_resident_memory_bytes", "process=0"] > 1e6
        text = answer.body.decode()
        assert str(tenant.id) not in text
        assert tenant.name not in text
        assert not re.search("somebody|tenant", text)


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        (("127.0.0.1", 1), {}, 200),
        (("::1", 1), {}, 200),
        (None, {}, 401),
        (("10.0.0.1", 1), {}, 401),
        (("127.0.0.1", 1), {b"x-forwarded-for": b"10.0.0.1"}, 401),
        (("10.0.0.1", 1), {b"authorization": b"Bearer token"}, 200),
        (("10.0.0.1", 1), {b"authorization": b"Bearer other"}, 401),
        (("10.0.0.1", 1), {b"authorization": b"Bearer "}, 401),
    ],
)
async def test_metrics_from_elsewhere_need_the_token(client, headers, status) -> None:
    async def nothing() -> list[str]:
        return []

    for token in ("token", None):
        health = Health(nothing, Metrics(), None, token)
        request = Request({"client": client}, None, headers)
        try:
            answered = (await health.metrics(request)).status
        except Refused as refused:
            answered = refused.problem.status
        wanted = 401 if token is None and b"authorization" in headers else status
        assert answered == wanted


def test_processes_answer_for_each_other(tmp_path) -> None:
    now = [100.0]
    first, second = (Exchange(tmp_path, name, lambda: now[0]) for name in ("0", "1"))
    metrics = Metrics(), Metrics()
    for index, exchange in enumerate((first, second)):
        for _ in range(index + 1):
            metrics[index].decision("chat", "route", "true", degraded=False)
            metrics[index].request("/v1/decide", 200, 0.002)
        exchange.leave(metrics[index].families())
    found = values(metrics[0].text(first.others(), first.own))
    labels = ("degraded=false", "logged=true", "point=route")
    assert found["steersman_decisions_total", *labels, "process=0", "skill=chat"] == 1
    assert found["steersman_decisions_total", *labels, "process=1", "skill=chat"] == 2
    le = "le=0.0025"
    assert found["steersman_http_seconds_bucket", le, "process=1", "route=/v1/decide"] == 2
    now[0] += 60  # the other process is gone
    assert first.others() == {}


async def test_no_count_ever_falls_whoever_is_asked(tmp_path) -> None:
    metrics = [Metrics(), Metrics()]
    asked = [
        Health(_well, own, Exchange(tmp_path, str(number))) for number, own in enumerate(metrics)
    ]
    request = Request({"client": ("127.0.0.1", 1)}, None, {})
    seen = []
    for turn in range(6):
        metrics[0].fallback("store")
        answer = await asked[turn % 2].metrics(request)
        found = values(answer.body)
        seen.append(found.get(("steersman_fallbacks_total", "process=0", "reason=store"), 0))
    assert seen == sorted(seen)
    assert seen[0] == 1


async def test_what_works_beside_the_service_is_told_too(serving) -> None:
    async with serving() as s:
        folder = s.home / "metrics"
        folder.mkdir()
        family = Family("rollout_held_seconds", "gauge", "Held", (), [((), 3.0)])
        Exchange(folder, "controller-7").leave([family])
        found = values((await s.ask("GET", "/metrics")).body)
        assert found["steersman_rollout_held_seconds", "process=controller-7"] == 3
        assert ("steersman_guardian_state", "process=0") in found


async def test_what_others_left_broken_and_a_full_disk_hide_no_metrics(tmp_path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "taken-back")
    (tmp_path / "half.json").write_bytes(b'[1e12, [["up", "gau')
    (tmp_path / "other.json").write_bytes(b'{"version": 2}')
    Exchange(tmp_path, "sound").leave(Metrics().families())
    (tmp_path / "own.part").mkdir()  # nothing can be written where a folder is
    health = Health(_well, Metrics(), Exchange(tmp_path, "own"))
    answer = await health.metrics(Request({"client": ("127.0.0.1", 1)}, None, {}))
    told = {name.removeprefix("process=") for labels in values(answer.body) for name in labels[1:]}
    assert (answer.status, told & {"own", "sound"}) == (200, {"own", "sound"})


async def _well() -> list[str]:
    return []


def test_what_alerts_count_is_there_before_it_happens() -> None:
    metrics = Metrics()
    metrics.on_flush("events")
    place = ("chat", "route")
    metrics.arms_of(lambda: [place])
    arm = ("arm=candidate", "point=route", "process=0", "result=failed", "skill=chat")
    found = values(metrics.text())
    assert found["steersman_arm_decisions_total", *arm] == 0
    assert found["steersman_flush_failures_total", "kind=events", "process=0"] == 0
    metrics.arm(*place, "candidate", "failed", 0.1)
    assert values(metrics.text())["steersman_arm_decisions_total", *arm] == 1
    metrics.arms_of(list)  # the rollout has ended: no count is taken back
    assert values(metrics.text())["steersman_arm_decisions_total", *arm] == 1


def test_nothing_counted_is_still_a_document() -> None:
    assert render({}) == b""
    assert b"steersman_decisions_total" in Metrics().text()


async def test_two_services_on_one_exchange(serving, tmp_path) -> None:
    async with serving(settings=Settings(process="a", exchange=tmp_path)) as s:
        Exchange(tmp_path, "b").leave(Metrics().families())
        text = (await s.ask("GET", "/metrics")).body
        assert b'process="a"' in text
        assert b'process="b"' in text
        await s.until((tmp_path / "a.json").exists)
