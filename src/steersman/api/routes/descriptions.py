"""HTTP handlers for the description of the API and the schemas of the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from steersman.api.route import Route, handles
from steersman.api.schemas import as_text, event_schemas
from steersman.platform.http.messages import Answer
from steersman.wire import Refused

if TYPE_CHECKING:
    from steersman.api.service import Service
    from steersman.platform.http.messages import Request

File = Literal[
    "feedback.submit.json",
    "interaction.create.json",
    "interaction.output.json",
    "task_result.json",
]


class Descriptions:
    """Handlers of the routes that describe the API.

    Args:
        document: OpenAPI document as JSON.
    """

    def __init__(self, document: bytes) -> None:
        self._files = {name: as_text(schema) for name, schema in event_schemas().items()}
        self._document = document

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(service.description)

    @handles(Route("GET", "/openapi.json", "Get this document", {}))
    async def openapi(self, _: Request) -> Answer:
        """Return the OpenAPI document."""
        return Answer(200, self._document)

    @handles(
        Route(
            "GET",
            "/schemas/events/v1/{file}",
            "Get the JSON Schema of an event type, for example task_result.json",
            {},
            parts={"file": File},
            codes=("not_found",),
            media="application/schema+json",
        )
    )
    async def schema(self, request: Request) -> Answer:
        """Return the published schema of an event type."""
        text = self._files.get(request.part("file"))
        if text is None:
            raise Refused.of("not_found", f"schema not found; available: {', '.join(self._files)}")
        return Answer(200, text, ((b"content-type", b"application/schema+json"),))
