"""The route table: query parameters, streams, the lifespan, and the files of the web interface."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Literal

import aiohttp
import msgspec
import pytest
from msgspec import Meta
from starlette.responses import StreamingResponse

from steersman.api.app import Application
from steersman.api.authentication import Authenticator
from steersman.api.route import Route, bound, handles, read_query
from steersman.api.schemas import components, query_parameters, shape
from steersman.api.server import HttpServer
from steersman.api.service import Settings
from steersman.errors import InputError
from steersman.platform.telemetry.tracing import Tracing
from steersman.serving.load_guard import Guard
from steersman.serving.metrics import Metrics
from steersman.wire import Refused


class Page(msgspec.Struct):
    """Query parameters of a list.

    Attributes:
        skill: name of the skill.
        limit: maximum number of rows, 1 to 100.
        order: sort order.
        at_least: smallest value.
        frozen: whether the point is frozen.
        tag: tags of the rows.
    """

    skill: str
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["newest", "oldest"] = "newest"
    at_least: float | None = None
    frozen: bool | None = None
    tag: list[str] = []


class Row(msgspec.Struct):
    """A row of the list.

    Attributes:
        text: what it says.
    """

    text: str


class Rows:
    """A noun as a system adds one."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.go_on = asyncio.Event()

    @handles(Route("GET", "/rows/{id}", "List rows", {"rows": list[Row]}, query=Page))
    async def rows(self, request, query):
        return {"rows": [Row(f"{request.part('id')} {query.skill} {query.limit}")]}

    @handles(
        Route(
            "POST", "/rows", "Add a row", Row, body=Row, limit=100, status=201, codes=("invalid",)
        )
    )
    async def add(self, request, row):
        return row

    @handles(
        Route("GET", "/whole", "Stream", str, variant="whole"),
        Route("GET", "/broken", "Stream and break off", str, variant="broken"),
        Route("GET", "/endless", "Stream until the client disconnects", str, variant="endless"),
    )
    async def stream(self, request):
        return StreamingResponse(self.parts(request.route.variant), media_type="text/event-stream")

    async def parts(self, variant):
        try:
            yield b"data: 1\n\n"
            await self.go_on.wait()
            if variant == "broken":
                raise RuntimeError("the source ended")
            yield b"data: 2\n\n"
            while variant == "endless":
                await asyncio.sleep(0.01)
                yield b"data: 3\n\n"
        finally:
            self.states.append(f"{variant} closed")

    @asynccontextmanager
    async def lifespan(self, _):
        self.states.append("begun")
        yield
        self.states.append("ended")


@asynccontextmanager
async def served():
    rows, metrics = Rows(), Metrics()

    async def no_keys(_):
        return {}

    app = Application(
        bound(rows),
        keys=Authenticator(no_keys, b"secret"),
        guard=Guard(lambda: 0, lambda: 0.0),
        metrics=metrics,
        tracing=Tracing(),
        lifespan=rows.lifespan,
    )
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(HttpServer(app).on_free_port())
        base = f"http://127.0.0.1:{port}"
        yield rows, metrics, await stack.enter_async_context(aiohttp.ClientSession(base))


def counted(metrics) -> dict[tuple[str, str], int]:
    """Return the number of requests by route and status."""
    (rows,) = [it.rows for it in metrics.families() if it.labels == ("route", "status")]
    return {labels: int(number) for labels, number in rows}


def test_query_parameters_have_types() -> None:
    query = b"skill=a%20b&limit=5&order=oldest&at_least=0.5&frozen=true&tag=x&tag=y&more=1"
    assert read_query(query, Page) == Page("a b", 5, "oldest", 0.5, True, ["x", "y"])
    assert read_query(b"skill=a", Page) == Page("a")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"", ""),
        (b"skill=a&limit=0", "limit"),
        (b"skill=a&limit=x", "limit"),
        (b"skill=a&limit=", "limit"),
        (b"skill=a&limit=1&limit=2", "limit"),
        (b"skill=a&order=best", "order"),
        (b"skill=a&at_least=low", "at_least"),
        (b"skill=a&frozen=1", "frozen"),
        (b"skill=a&frozen=true&frozen=false", "frozen"),
    ],
)
def test_an_invalid_query_is_refused_with_its_field(query, field) -> None:
    with pytest.raises(Refused) as refused:
        read_query(query, Page)
    assert (refused.value.problem.code, refused.value.problem.field or "") == ("invalid", field)


def test_a_route_describes_its_types() -> None:
    described = {one["name"]: one for one in query_parameters(Page)}
    assert described["skill"]["required"]
    assert described["limit"]["description"] == "Maximum number of rows, 1 to 100."
    assert described["limit"]["schema"] == {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 20
    }  # fmt: skip
    routes = [route for route, _ in bound(Rows())]
    assert components(routes)["Row"]["properties"]["text"]["description"] == "What it says."
    assert shape(routes[0].answer)["properties"]["rows"]["items"] == {
        "$ref": "#/components/schemas/Row"
    }


async def test_a_handler_gets_what_its_route_declares() -> None:
    async with served() as (_, metrics, http):
        async with http.get("/rows/7?skill=a&limit=3") as answer:
            assert await answer.json() == {"rows": [{"text": "7 a 3"}]}
        async with http.get("/rows/7?skill=a&limit=many") as answer:
            problem = await answer.json(content_type="application/problem+json")
            assert (answer.status, problem["field"]) == (422, "limit")
        async with http.post("/rows", json={"text": "x"}) as answer:
            assert (answer.status, await answer.json()) == (201, {"text": "x"})
        async with http.post("/rows", json={"text": "x" * 100}) as answer:
            assert answer.status == 413
        async with http.delete("/rows") as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert counted(metrics) == {
            ("/rows/{id}", "200"): 1,
            ("/rows/{id}", "422"): 1,
            ("/rows", "201"): 1,
            ("/rows", "413"): 1,
            ("unmatched", "405"): 1,
        }


async def test_a_stream_is_sent_as_its_parts_come() -> None:
    async with served() as (rows, metrics, http):
        async with http.get("/whole", headers={"x-request-id": "mine"}) as answer:
            assert answer.headers["x-request-id"] == "mine"
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert await answer.content.readany() == b"data: 1\n\n"
            assert rows.states == ["begun"]
            rows.go_on.set()
            assert await answer.read() == b"data: 2\n\n"
        async with http.head("/whole") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with http.get("/rows/1?skill=a") as answer:
            assert answer.status == 200  # over the same connection
        assert counted(metrics)["/whole", "200"] == 2


async def test_a_stream_that_fails_ends_its_connection(caplog) -> None:
    async with served() as (rows, metrics, http):
        rows.go_on.set()
        async with http.get("/broken") as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert counted(metrics)["/broken", "500"] == 1
    assert "the source ended" in caplog.text


async def test_a_stream_ends_when_the_client_disconnects() -> None:
    async with served() as (rows, _, http):
        rows.go_on.set()
        async with http.get("/endless") as answer:
            await answer.content.readany()
            answer.close()
        async with asyncio.timeout(10):
            while "endless closed" not in rows.states:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)


async def test_the_lifespan_holds_while_requests_are_answered() -> None:
    async with served() as (rows, _, http):
        async with http.get("/rows/1?skill=a") as answer:
            assert answer.status == 200
        assert rows.states == ["begun"]
    assert rows.states == ["begun", "ended"]


async def test_the_web_interface_is_served_where_there_is_one(serving, tmp_path) -> None:
    ui = tmp_path / "ui"
    (ui / "rollouts").mkdir(parents=True)
    (ui / "index.html").write_text("<h1>Steersman</h1>")
    (ui / "rollouts/index.html").write_text("<h1>Rollouts</h1>")
    (tmp_path / "secret").write_text("secret")
    async with serving(settings=Settings(ui=ui)) as s:
        for path in ("/ui", "/ui/", "/ui/index.html"):
            answer = await s.ask("GET", path, key=None)
            assert (answer.status, answer.body) == (200, b"<h1>Steersman</h1>")
            assert "x-request-id" in answer.headers
        assert (await s.ask("GET", "/ui/rollouts/", key=None)).body == b"<h1>Rollouts</h1>"
        head = await s.ask("HEAD", "/ui/index.html", key=None)
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "18")
        for path in ("/ui/none.js", "/ui/..%2Fsecret", "/ui/%2E%2E/secret"):
            answer = await s.ask("GET", path, key=None)
            assert (answer.status, answer.body["code"]) == (404, "not_found")
        assert (await s.ask("POST", "/ui/", {}, key=None)).status == 405


@pytest.mark.parametrize(
    ("wanted", "status"), [("bytes=x", 400), ("bytes=99-", 416), ("bytes=0-3", 206), (None, 200)]
)
async def test_answers_to_a_range_carry_the_request_id_and_are_counted(
    serving, tmp_path, wanted, status
) -> None:
    (tmp_path / "index.html").write_text("<h1>Steersman</h1>")
    async with serving(settings=Settings(ui=tmp_path)) as s:
        sent = {} if wanted is None else {"range": wanted}
        answer = await s.ask("GET", "/ui/index.html", key=None, x_request_id="mine", **sent)
        assert answer.status == status
        assert answer.headers["x-request-id"] == "mine"
        expected = {("/ui/{file:path}", str(status)): 1}
        await s.until(lambda: counted(s.service.metrics) == expected)


async def test_without_a_web_interface_its_paths_are_unknown(serving) -> None:
    async with serving() as s:
        for path in ("/ui", "/ui/", "/ui/index.html"):
            answer = await s.ask("GET", path, key=None)
            assert (answer.status, answer.body["code"]) == (404, "not_found")


def test_a_folder_of_the_web_interface_must_exist(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("STEERSMAN_UI", str(tmp_path))
    assert Settings.from_environment().ui == tmp_path
    monkeypatch.setenv("STEERSMAN_UI", str(tmp_path / "none"))
    with pytest.raises(InputError, match="expected an existing folder"):
        Settings.from_environment()
