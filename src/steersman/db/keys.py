"""API keys: 256 random bits, stored as a keyed hash, with scopes, expiry and rotation.

The text of a key is never stored or logged. A reader of the database can neither create keys nor
test guesses without the service's secret.
"""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.audit import record
from steersman.db.secret import SECRET_BYTES, hash_key
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.platform.postgres.database import Database

SCOPES = ("decide", "events", "read", "admin")
"""Permissions of a key."""
ROLES: dict[str, tuple[str, ...]] = {
    "application": ("decide", "events"),
    "observer": ("read",),
    "operator": SCOPES,
}
"""Scopes by role name; a key with other scopes has role ``custom``."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 43  # 62^43 > 2^256
_PREFIX = 11


@dataclass(frozen=True, slots=True)
class KeyRow:
    """API key without its text and hash.

    Attributes:
        tenant: tenant id.
        id: UUIDv7.
        name: display name.
        prefix: first characters, for display.
        role: application, observer, operator or custom.
        scopes: permissions.
        created_at: creation time.
        expires_at: expiry time; None: never.
        revoked_at: time from which it is rejected, after revocation or rotation.
        rotated_from: the key it replaces.
    """

    tenant: UUID
    id: UUID
    name: str
    prefix: str
    role: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_from: UUID | None

    def active(self, at: datetime) -> bool:
        """Return whether the key is valid at a time."""
        return all(end is None or at < end for end in (self.expires_at, self.revoked_at))


async def create_key(
    database: Database,
    tenant: UUID,
    *,
    secret: bytes,
    name: str,
    actor: str,
    role: str = "application",
    scopes: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[KeyRow, str]:
    """Create an API key.

    Args:
        name: display name, 1 to 100 characters.
        expires_at: expiry time; None: never.

    Raises:
        InputError: unknown role or scope, invalid name, or a time without zone.
        StoreError: the tenant does not exist, or the database is unreachable.
    """
    role, allowed = _checked_scopes(role, scopes)
    _check_name(name)
    _check_time(expires_at)
    async with _administer(database, tenant) as connection:
        row, text = await _insert(
            connection, tenant, secret, name, role, allowed, expires_at, rotated_from=None
        )
        detail = {"name": name, "prefix": row.prefix, "role": role, "scopes": allowed}
        await record(connection, tenant, actor, "key.create", str(row.id), detail)
    return row, text


async def rotate_key(
    database: Database,
    tenant: UUID,
    identifier: UUID,
    *,
    secret: bytes,
    actor: str,
    grace_s: float = 3600.0,
) -> tuple[KeyRow, str]:
    """Replace an API key; the old one stays valid for a grace period.

    Args:
        grace_s: grace period in seconds, 0 to 30 days.

    Raises:
        InputError: the grace period is out of range.
        StoreError: the key does not exist, is revoked, expired or already rotated, or the
            database is unreachable.
    """
    if not 0 <= grace_s <= 30 * 86_400:
        message = f"grace_s is {grace_s!r}; allowed is 0 to 2,592,000 (30 days)"
        raise InputError(message)
    async with _administer(database, tenant) as connection:
        # A concurrent rotation waits here and then sees this one.
        await connection.execute("SELECT FROM api_key WHERE id = $1 FOR UPDATE", identifier)
        old = await _get(connection, identifier)
        now = await connection.fetchval("SELECT now()")
        if not old.active(now):
            message = f"key {old.prefix}… is revoked or expired; create a new one instead"
            raise StoreError(message)
        if old.revoked_at is not None:
            message = (
                f"key {old.prefix}… was already rotated and expires at "
                f"{old.revoked_at.isoformat(timespec='seconds')}; rotate its replacement "
                "(see `steersman key list`), or create a new key"
            )
            raise StoreError(message)
        row, text = await _insert(
            connection,
            tenant,
            secret,
            old.name,
            old.role,
            old.scopes,
            old.expires_at,
            rotated_from=identifier,
        )
        await _revoke(connection, old, now + timedelta(seconds=grace_s))
        detail = {"prefix": row.prefix, "replaces": str(identifier), "grace_s": grace_s}
        await record(connection, tenant, actor, "key.rotate", str(row.id), detail)
    return row, text


async def revoke_key(database: Database, tenant: UUID, identifier: UUID, *, actor: str) -> KeyRow:
    """Revoke an API key; services are notified at once.

    Raises:
        StoreError: the key does not exist, or the database is unreachable.
    """
    async with _administer(database, tenant) as connection:
        old = await _get(connection, identifier)
        now = await connection.fetchval("SELECT now()")
        if old.revoked_at is None or old.revoked_at > now:
            await _revoke(connection, old, now)
            await record(
                connection, tenant, actor, "key.revoke", str(identifier), {"prefix": old.prefix}
            )
        return await _get(connection, identifier)


async def list_keys(database: Database, tenant: UUID) -> list[KeyRow]:
    """Return a tenant's keys, including invalid ones, in creation order.

    Raises:
        StoreError: the database is unreachable.
    """
    async with _administer(database, tenant) as connection:
        rows = await connection.fetch("SELECT * FROM api_key ORDER BY created_at, id")
    return [_key(row) for row in rows]


async def find_keys(connection: Any, hashes: Sequence[bytes]) -> dict[bytes, KeyRow]:
    """Return the active keys of some hashes, of any tenant.

    Policy ``presented`` of the table shows a row only for its hash.
    """
    async with connection.transaction():
        shown = ",".join(value.hex() for value in hashes)
        await connection.execute("SELECT set_config('app.key_hashes', $1, true)", shown)
        rows = await connection.fetch(
            "SELECT * FROM api_key WHERE hash = ANY($1) "
            "AND (expires_at IS NULL OR expires_at > now()) "
            "AND (revoked_at IS NULL OR revoked_at > now())",
            list(hashes),
        )
    return {row["hash"]: _key(row) for row in rows}


@asynccontextmanager
async def _administer(database: Database, tenant: UUID) -> AsyncIterator[Any]:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            yield connection
    except asyncpg.ForeignKeyViolationError:
        message = f"tenant not found: {tenant}; `steersman tenant list` lists all"
        raise StoreError(message) from None
    finally:
        await connection.close()


async def _insert(
    connection: Any,
    tenant: UUID,
    secret: bytes,
    name: str,
    role: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    *,
    rotated_from: UUID | None,
) -> tuple[KeyRow, str]:
    text = _new_text()
    row = await connection.fetchrow(
        "INSERT INTO api_key (tenant, id, name, prefix, hash, role, scopes, expires_at, "
        "rotated_from) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *",
        tenant,
        new_id(),
        name,
        text[:_PREFIX],
        hash_key(secret, text),
        role,
        list(scopes),
        expires_at,
        rotated_from,
    )
    return _key(row), text


async def _revoke(connection: Any, key: KeyRow, at: datetime) -> None:
    await connection.execute(
        "UPDATE api_key SET revoked_at = least(revoked_at, $2) WHERE id = $1", key.id, at
    )
    await connection.execute("SELECT pg_notify('steersman_key', $1)", f"{key.tenant}/{key.id}")


async def _get(connection: Any, identifier: UUID) -> KeyRow:
    row = await connection.fetchrow("SELECT * FROM api_key WHERE id = $1", identifier)
    if row is None:
        message = f"key not found: {identifier}; `steersman key list` lists the keys of the tenant"
        raise StoreError(message)
    return _key(row)


def _key(row: Any) -> KeyRow:
    values = {name: row[name] for name in KeyRow.__slots__}
    return KeyRow(**{**values, "scopes": tuple(row["scopes"])})


def _checked_scopes(role: str, scopes: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    if scopes is None:
        if role not in ROLES:
            message = f"the role is {role!r:.80}; allowed are {', '.join(ROLES)}; or pass scopes"
            raise InputError(message)
        return role, ROLES[role]
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        message = f"the scopes are {list(scopes)!r:.200}; allowed are one or more of "
        raise InputError(message + f"{', '.join(SCOPES)}; pass those the key needs")
    return "custom", tuple(sorted(set(scopes)))


def _check_name(name: str) -> None:
    if not (1 <= len(name) <= 100 and name.isprintable()):
        message = f"the key name is {name!r:.120}; allowed are 1 to 100 printable characters"
        raise InputError(message)


def _check_time(at: datetime | None) -> None:
    if at is not None and at.utcoffset() is None:
        message = f"expires_at is {at!r}, which has no time zone; add one, such as UTC"
        raise InputError(message)


def _new_text() -> str:
    number = secrets.randbits(8 * SECRET_BYTES)
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "sk_" + "".join(digits)
