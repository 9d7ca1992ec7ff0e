"""Problem details of error answers (RFC 9457), and their codes.

Codes are stable, so programs may branch on them. Each code has a fixed title. The detail says what
is wrong, the value, what is allowed and what to do next.
"""

from __future__ import annotations

import msgspec

CODES: dict[str, tuple[int, str]] = {
    "bad_request": (400, "The request is not valid HTTP"),
    "bad_json": (400, "The body is not the expected JSON"),
    "unauthorized": (401, "The API key is missing, unknown, expired or revoked"),
    "forbidden": (403, "The API key lacks the scope"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "The path does not support this method"),
    "timeout": (408, "The request did not arrive in time"),
    "idempotency_conflict": (409, "The idempotency key was used with another body"),
    "not_allowed": (409, "Not allowed in the current state"),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The body must be application/json"),
    "invalid": (422, "A value is not allowed"),
    "too_many_requests": (429, "Too many requests"),
    "headers_too_large": (431, "The request headers are too large"),
    "internal": (500, "Internal server error"),
    "unavailable": (503, "The service is unavailable"),
}
"""Code -> (HTTP status, title)."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of an error answer, media type ``application/problem+json``.

    Attributes:
        code: stable error code, one of `CODES`.
        status: HTTP status.
        title: meaning of the code.
        detail: what is wrong, the value, what is allowed, and what to do next.
        type: URI reference of the code.
        field: place in the request body, for example ``events[3].outcomes.success``.
        retry_after_s: seconds to wait before a retry.
    """

    code: str
    status: int
    title: str
    detail: str
    type: str = "about:blank"
    field: str = ""
    retry_after_s: float | None = None

    @classmethod
    def of(
        cls, code: str, detail: str, *, field: str = "", retry_after_s: float | None = None
    ) -> Problem:
        """Return the problem of a code.

        Args:
            code: one of `CODES`.
            detail: what is wrong, and what to do next.
            field: place in the request body.
            retry_after_s: seconds to wait before a retry. None: a retry does not help.

        Returns:
            The problem with the status, title and type of its code.

        >>> Problem.of("not_found", "no decision 1; check the id").status
        404
        """
        status, title = CODES[code]
        kind = f"/problems/{code}"
        return cls(code, status, title, detail, kind, field, retry_after_s)


class Refused(Exception):  # noqa: N818 (an answer, not always a server error)
    """Answer a request with a problem instead of a result.

    Args:
        problem: body of the answer.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @classmethod
    def of(
        cls, code: str, detail: str, *, field: str = "", retry_after_s: float | None = None
    ) -> Refused:
        """Return a refusal; arguments as in `Problem.of`.

        Args:
            code: one of `CODES`.
            detail: what is wrong, and what to do next.
            field: place in the request body.
            retry_after_s: seconds to wait before a retry.

        Returns:
            An exception to raise.

        >>> Refused.of("invalid", "no context; send one").problem.status
        422
        """
        return cls(Problem.of(code, detail, field=field, retry_after_s=retry_after_s))
