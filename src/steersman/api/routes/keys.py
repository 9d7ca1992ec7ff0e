"""HTTP handlers for API keys: list, create, rotate, revoke, with the scope admin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Self, TypeVar
from uuid import UUID  # noqa: TC003 (field type)

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.keys import KeyRow, create_key, list_keys, revoke_key, rotate_key
from steersman.errors import InputError, StoreError
from steersman.platform.http.tenant_limiter import Apart
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.api.service import Service
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.platform.postgres.database import Database

T = TypeVar("T")
_LIMIT = 16 * 1024
_MISSING = "active key not found; GET /v1/keys lists the keys"


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    """Request for a new API key.

    Attributes:
        name: display name.
        role: one of application, observer, operator. Give a role or scopes, not both.
        scopes: scopes of the key. Give a role or scopes, not both.
        expires_at: expiry time in seconds since 1970; absent: never.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: str = ""
    scopes: Annotated[list[str], Meta(max_length=8)] | None = None
    expires_at: Annotated[float, Meta(ge=0, le=253_402_300_799)] | None = None


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """Request to replace an API key.

    Attributes:
        grace_s: time in seconds for which the old key stays valid.
    """

    grace_s: Annotated[float, Meta(ge=0, le=2_592_000)] = 3600.0


class ShownKey(msgspec.Struct, omit_defaults=True):
    """API key. Its text is present only when the key is created.

    Attributes:
        id: key id.
        name: display name.
        prefix: first characters of the key.
        role: one of application, observer, operator, custom.
        scopes: scopes of the key.
        created_at: creation time in seconds since 1970.
        expires_at: expiry time in seconds since 1970.
        revoked_at: revocation time in seconds since 1970.
        rotated_from: id of the key that this one replaces.
        key: text of the key; shown once.
    """

    id: UUID
    name: str
    prefix: str
    role: str
    scopes: list[str]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_from: UUID | None = None
    key: str | None = None


class KeyAdmin:
    """Handlers of the routes for keys.

    Args:
        database: database of the keys.
        secret: secret for the keyed hash.
        breaker: circuit breaker for the store.
    """

    def __init__(self, database: Database, secret: bytes, breaker: Breaker) -> None:
        self._database = database
        self._secret = secret
        self._breaker = breaker
        # Separate, so that endless listing does not block revocation.
        self._listing, self._changing = Apart(), Apart()

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(service.pools.acting, service.secret, service.breakers["administering"])

    @handles(
        Route(
            "GET",
            "/v1/keys",
            "List the API keys of the tenant",
            {"keys": list[ShownKey]},
            scope="admin",
            sheds="read",
        )
    )
    async def listed(self, request: Request) -> dict[str, list[ShownKey]]:
        """Return the keys without their texts."""
        tenant = request.key.tenant
        async with self._listing.turn(tenant):
            rows = await self._breaker.call(lambda: list_keys(self._database, tenant))
        return {"keys": [_shown(row) for row in rows]}

    @handles(
        Route(
            "POST",
            "/v1/keys",
            "Create an API key; its text is shown once",
            ShownKey,
            scope="admin",
            body=NewKey,
            limit=_LIMIT,
            examples={"one": {"name": "checkout service", "role": "application"}},
            status=201,
        )
    )
    async def create(self, request: Request, asked: NewKey) -> ShownKey:
        """Return the new key with its text, which is shown only once."""
        if asked.role and asked.scopes is not None:
            # The role and the scopes could contradict each other.
            detail = f"role {asked.role!r:.80} and scopes are both given; give only one of them"
            raise Refused.of("invalid", detail, field="scopes")
        expires = (
            None if asked.expires_at is None else datetime.fromtimestamp(asked.expires_at, UTC)
        )
        try:
            row, text = await self._do(
                request,
                lambda: create_key(
                    self._database,
                    request.key.tenant,
                    secret=self._secret,
                    name=asked.name,
                    role=asked.role,
                    scopes=asked.scopes,
                    expires_at=expires,
                    actor=f"key {request.key.id}",
                ),
            )
        except InputError as error:
            raise Refused.of("invalid", str(error)) from None
        return _shown(row, text)

    @handles(
        Route(
            "POST",
            "/v1/keys/{id}/rotate",
            "Rotate an API key: create a new one; the old one stays valid for a grace period",
            ShownKey,
            scope="admin",
            body=Rotation,
            limit=_LIMIT,
            examples={"one": {"grace_s": 3600}},
            codes=("not_found",),
            status=201,
        )
    )
    async def rotate(self, request: Request, asked: Rotation) -> ShownKey:
        """Return the new key with its text, which is shown only once."""
        identifier = request.uuid(_MISSING)
        try:
            row, text = await self._do(
                request,
                lambda: rotate_key(
                    self._database,
                    request.key.tenant,
                    identifier,
                    secret=self._secret,
                    actor=f"key {request.key.id}",
                    grace_s=asked.grace_s,
                ),
            )
        except StoreError:
            raise _no_such_key() from None
        return _shown(row, text)

    @handles(
        Route(
            "DELETE",
            "/v1/keys/{id}",
            "Revoke an API key; it takes effect within a second",
            ShownKey,
            scope="admin",
            codes=("not_found",),
        )
    )
    async def revoke(self, request: Request) -> ShownKey:
        """Return the revoked key; a revocation is never shed."""
        identifier = request.uuid(_MISSING)
        actor = f"key {request.key.id}"
        try:
            row = await self._do(
                request,
                lambda: revoke_key(self._database, request.key.tenant, identifier, actor=actor),
            )
        except StoreError:
            raise _no_such_key() from None
        return _shown(row)

    async def _do(self, request: Request, work: Callable[[], Awaitable[T]]) -> T:
        async with self._changing.turn(request.key.tenant):
            return await self._breaker.call(work)


def _shown(row: KeyRow, text: str | None = None) -> ShownKey:
    return ShownKey(
        row.id,
        row.name,
        row.prefix,
        row.role,
        sorted(row.scopes),
        row.created_at.timestamp(),
        None if row.expires_at is None else row.expires_at.timestamp(),
        None if row.revoked_at is None else row.revoked_at.timestamp(),
        row.rotated_from,
        text,
    )


def _no_such_key() -> Refused:
    return Refused.of("not_found", _MISSING)
