"""HTTP handler that forecasts the duration of a rollout, with the scope read."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.points import find_declared
from steersman.errors import InputError
from steersman.platform.http.messages import READ_S, in_time
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.forecast import Forecast, Traffic, forecast, traffic_of
from steersman.rollouts.plan import plan_of
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from asyncpg import Pool

    from steersman.api.service import Service
    from steersman.db.points import PointRow
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.rollouts.plan import RolloutPlan

_NOT_READ = "the log of the last week was not read"

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class NewForecast(msgspec.Struct, forbid_unknown_fields=True):
    """Request to forecast the units and days of a rollout.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        effect: difference of mean reward per unit that the rollout must detect.
        sd: standard deviation of the reward of one unit; absent: estimated from the log of the last
            week.
        units_per_day: new units per day; absent: estimated from the log of the last week.
        overrides: fields of the section ``rollout`` that replace the declared ones.
    """

    skill: Name
    decision: Name
    effect: Annotated[float, Meta(gt=0, le=1)] = 0.03
    sd: Annotated[float, Meta(gt=0, le=0.5)] | None = None
    units_per_day: Annotated[float, Meta(ge=1e-6, le=1e12)] | None = None
    overrides: dict[str, Any] = {}


class ShownForecast(msgspec.Struct):
    """Forecast of a rollout.

    Attributes:
        forecast: units and days, in total and by stage.
        plan: assumed plan: stages, guardrails and limits.
        logged: traffic and reward spread of the last week.
    """

    forecast: Forecast
    plan: dict[str, Any]
    logged: Traffic


class RolloutForecasts:
    """Handler of the route for forecasts.

    Args:
        pool: connections of role app, for reading.
        reading: circuit breaker for the store.
        clock: seconds since 1970.
    """

    def __init__(
        self, pool: Pool[Any], reading: Breaker, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool = pool
        self._reading = reading
        self._clock = clock
        # At most one connection per tenant, because all tenants share a few.
        self._own: dict[UUID, asyncio.Lock] = {}

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(service.pools.reading, service.breakers["reading"])

    @handles(
        Route(
            "POST",
            "/v1/rollouts/plan",
            "Forecast the units and days of a rollout without starting it",
            ShownForecast,
            scope="read",
            sheds="read",
            body=NewForecast,
            examples={"one": {"skill": "assistant", "decision": "route", "effect": 0.03}},
            codes=("not_found",),
        )
    )
    async def plan(self, request: Request, asked: NewForecast) -> ShownForecast:
        """Return a forecast; nothing is started or stored.

        Raises:
            Refused: unknown decision point, number out of range, or a log that is too short or too
                long.
        """
        place = request.key.tenant, asked.skill, asked.decision

        async def read() -> tuple[PointRow, Traffic] | None:
            async with (
                self._own.setdefault(place[0], asyncio.Lock()),
                self._pool.acquire() as connection,
                as_tenant(connection, place[0]),
            ):
                row = await find_declared(connection, place)
                if row is None:
                    return None
                return row, await traffic_of(connection, row, now=self._clock())

        found = await self._reading.call(lambda: in_time(read, READ_S, _NOT_READ))
        if found is None:
            raise Refused.of("not_found", "decision point not found")
        row, logged = found
        try:
            plan = plan_of(row.spec, salt="plan", overrides=asked.overrides)
            result = _forecast(plan, asked, logged)
        except InputError as error:
            raise Refused.of("invalid", str(error)) from None
        return ShownForecast(result, plan.to_json(), logged)


def _forecast(plan: RolloutPlan, asked: NewForecast, logged: Traffic) -> Forecast:
    sd = logged.sd if asked.sd is None else asked.sd
    daily = logged.units_per_day if asked.units_per_day is None else asked.units_per_day
    if not sd or not daily:
        message = "the log has too few rewards to estimate spread and traffic; give sd and "
        raise InputError(message + "units_per_day")
    return forecast(plan, sd, asked.effect, daily)
