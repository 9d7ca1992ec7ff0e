"""Problem details (RFC 9457): what an error answer says, and the codes it can carry.

A code is stable: programs may branch on it. The title belongs to the code; the detail tells the
value seen, what is allowed and what to do next.
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
    """The body of an error answer, media type ``application/problem+json``.

    Attributes:
        code: one of `CODES`.
        status: the HTTP status.
        title: what the code means.
        detail: what was wrong here, the value seen, the range allowed, what to do next.
        type: a URI reference that names the code.
        field: the place in the body, such as ``events[3].outcomes.success``.
        retry_after_s: seconds after which the same request may succeed.
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
            detail: what was wrong, and what to do next.
            field: the place in the body.
            retry_after_s: seconds after which to try again; None: trying again will not help.

        Returns:
            The problem, with status, title and type of its code.

        >>> Problem.of("not_found", "no decision 1; check the id").status
        404
        """
        status, title = CODES[code]
        kind = f"/problems/{code}"
        return cls(code, status, title, detail, kind, field, retry_after_s)


class Refused(Exception):  # noqa: N818 (it is an answer, and not always an error of ours)
    """A request is answered with a problem instead of a result.

    Args:
        problem: what is answered.
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
            detail: what was wrong, and what to do next.
            field: the place in the body.
            retry_after_s: seconds after which to try again.

        Returns:
            The refusal, to be raised.

        >>> Refused.of("invalid", "no context; send one").problem.status
        422
        """
        return cls(Problem.of(code, detail, field=field, retry_after_s=retry_after_s))
