"""HTTP handler for the files of the web interface."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Self

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from steersman.api.route import Route, handles
from steersman.wire import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.responses import Response

    from steersman.api.service import Service
    from steersman.platform.http.messages import Request


class WebFiles:
    """Handler of the routes under ``/ui``; they need no key and are not part of the API.

    Args:
        directory: static files; None: every path is unknown.
    """

    def __init__(self, directory: Path | None) -> None:
        self._files = None if directory is None else StaticFiles(directory=directory, html=True)

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(service.settings.ui)

    @handles(
        Route("GET", "/ui", "Go to the web interface", str, hidden=True),
        Route("GET", "/ui/{file:path}", "Get a file of the web interface", str, hidden=True),
    )
    async def file(self, request: Request) -> Response:
        """Return a file, or ``index.html`` of a folder."""
        if self._files is None:
            raise _no_such_file()
        if request.scope["path"] == "/ui":
            return RedirectResponse("/ui/")
        # Starlette refuses paths outside the directory.
        path = posixpath.normpath(request.scope["path_params"]["file"])
        try:
            return await self._files.get_response(path, dict(request.scope))
        except HTTPException:
            raise _no_such_file() from None


def _no_such_file() -> Refused:
    return Refused.of("not_found", "file not found; GET /openapi.json describes the API")
