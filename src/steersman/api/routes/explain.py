"""HTTP handler that explains one decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from steersman.api.route import Route, handles
from steersman.serving.explain import Explainer, Explanation
from steersman.wire import Refused

if TYPE_CHECKING:
    from steersman.api.service import Service
    from steersman.platform.http.messages import Request

_MISSING = "decision not found; check the id"


class ExplainQuery(msgspec.Struct):
    """Query parameters of an explanation.

    Attributes:
        recompute: Recompute the distribution from the policy state of the decision.
    """

    recompute: bool = False


class Explain:
    """Handler of the route for explanations.

    Args:
        explainer: explains decisions.
    """

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        reading, rebuilding = service.breakers["reading"], service.breakers["rebuilding"]
        return cls(Explainer(service.pools.reading, reading, rebuilding, service.verified))

    @handles(
        Route(
            "GET",
            "/v1/decisions/{id}/explain",
            "Explain one decision",
            Explanation,
            scope="read",
            sheds="read",
            codes=("not_found",),
            query=ExplainQuery,
        )
    )
    async def explain(self, request: Request, query: ExplainQuery) -> Explanation:
        """Return an explanation; unknown, malformed and other tenants' ids look the same.

        Raises:
            Refused: decision not found, too many rebuilds in progress, or a timeout.
        """
        identifier = request.uuid(_MISSING)
        found = await self._explainer.explain(
            request.key.tenant, identifier, recompute=query.recompute
        )
        if found is None:
            raise Refused.of("not_found", _MISSING)
        return found
