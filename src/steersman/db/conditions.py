"""Conditions over decisions: a single SQL expression from an operator.

The condition runs with the rights of one tenant in a read-only transaction. It is also checked
token by token: columns, comparisons, arithmetic and a few safe functions are allowed. Subqueries,
comments and further statements are not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.derived_snapshots import Segment
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database

_TOKEN = re.compile(
    r"""\s+
    | '(?:[^'\\]|'')*'              # text; a backslash has no meaning worth having
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)(?!['"A-Za-z0-9_])
    | \d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z_])
    | (?P<open>[(\[]) | (?P<close>[)\]])
    | -> >? | :: | <= | >= | <> | != | \|\| | @> | <@ | [-+*/%<>=,.?]
    """,
    re.VERBOSE,
)
_QUERIES = {"select", "with", "values", "table", "union", "intersect", "except", "from", "into"}
_CALLED = {
    *("abs", "ceil", "floor", "round", "greatest", "least", "coalesce", "nullif"),
    *("lower", "upper", "length", "char_length", "starts_with", "strpos", "substr", "trim"),
    *("cardinality", "array_length", "jsonb_typeof", "jsonb_array_length"),
    *("date_trunc", "date_part", "to_timestamp", "now"),
    *("and", "or", "not", "in", "any", "all", "like", "ilike", "between", "array", "is", "case"),
    *("when", "then", "else"),
}
_LONGEST = 2000
_TIMEOUT_MS = 30_000


def check_condition(condition: str) -> str:
    """Return a condition if it is one expression over columns.

    Args:
        condition: SQL, such as ``unit = 'bot-7' AND at > '2026-11-01'``; at most 2000 characters.

    Raises:
        InputError: it contains anything else; the message names it.

    >>> check_condition("unit = 'bot-7' AND context->>'intent' <> 'it''s fine'")
    "unit = 'bot-7' AND context->>'intent' <> 'it''s fine'"
    >>> check_condition("true) OR (true")
    Traceback (most recent call last):
    steersman.errors.InputError: the condition closes at character 4 a bracket that is not open; ...
    """
    if not condition.strip() or len(condition) > _LONGEST:
        raise InputError(
            f"the condition has {len(condition)} characters; allowed are 1 to {_LONGEST}"
        )
    try:
        condition.encode()
    except UnicodeEncodeError as error:  # typed in a terminal with another encoding
        part = condition[error.start : error.end]
        raise _refused("has", error.start, f"{part!r}, which is not valid UTF-8") from None
    opened, place = 0, 0
    while place < len(condition):
        token = _TOKEN.match(condition, place)
        if token is None or condition.startswith(("--", "/*"), place):
            raise _refused("has", place, f"{condition[place : place + 10]!r}, which is not allowed")
        opened += bool(token["open"]) - bool(token["close"])
        if opened < 0:
            raise _refused("closes", place, "a bracket that is not open")
        if token["word"]:
            _check_word(token["word"], condition[token.end() :], place)
        place = token.end()
    if opened:
        raise InputError(f"the condition has {opened} unclosed brackets; close them")
    return condition


async def matching(database: Database, point: Point, condition: str) -> list[UUID]:
    """Return the decisions of a point that match a condition.

    Raises:
        InputError: invalid expression, unknown column, wrong type, or a run time over 30 s.
    """
    query = (
        "SELECT id FROM decision WHERE tenant = $1 AND skill = $2 AND point = $3 "  # noqa: S608 (checked)
        f"AND ({check_condition(condition)}) ORDER BY id"
    )
    connection = await database.connect("app")
    try:
        await connection.execute(f"SET statement_timeout = {_TIMEOUT_MS}")
        await connection.execute("SET default_transaction_read_only = on")
        async with as_tenant(connection, point[0]):
            return [row["id"] for row in await _fetch(connection, query, point)]
    finally:
        await connection.close()


async def unseen_by(
    connection: Any,
    point: Point,
    segments: Sequence[Segment],
    snapshot: str,
    until: datetime | None,
) -> tuple[int, UUID | None]:
    """Return how many updates have no decision in the hot tables, and the newest such time.

    Returns:
        The count and the time; None for the time if the count is 0.
    """
    rows = await connection.fetch(
        "SELECT count(*), max(u.decision::text)::uuid FROM update AS u "
        "JOIN unnest($4::text[], $5::bigint[]) AS s (id, last) "
        "ON u.snapshot = s.id AND u.seq <= coalesce(s.last, u.seq) "
        "WHERE u.tenant = $1 AND u.skill = $2 AND u.point = $3 "
        "AND ($6::timestamptz IS NULL OR u.at <= $6) AND NOT EXISTS ("
        "  SELECT FROM decision AS d WHERE d.tenant = $1 AND d.id = u.decision"
        ") AND NOT EXISTS ("
        "  SELECT FROM erasure AS e WHERE e.tenant = $1 AND e.decision = u.decision"
        ") AND NOT EXISTS (SELECT FROM excluded AS e WHERE e.tenant = $1 AND e.skill = $2 "
        "  AND e.point = $3 AND e.snapshot = $7 AND e.decision = u.decision)",
        *(*point, [each.id for each in segments], [each.last for each in segments]),
        *(until, snapshot),
    )
    return rows[0][0], rows[0][1]


async def unknown_among(connection: Any, point: Point, ids: Sequence[UUID]) -> list[UUID]:
    """Return the ids that no decision or update of a point has."""
    rows = await connection.fetch(
        "SELECT w.id FROM unnest($4::uuid[]) AS w (id) WHERE NOT EXISTS ("
        "  SELECT FROM decision AS d WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 "
        "  AND d.id = w.id"
        ") AND NOT EXISTS ("
        "  SELECT FROM update AS u WHERE u.tenant = $1 AND u.skill = $2 AND u.point = $3 "
        "  AND u.decision = w.id) ORDER BY w.id",
        *(*point, ids),
    )
    return [row["id"] for row in rows]


async def _fetch(connection: Any, query: str, point: Point) -> list[Any]:
    try:
        found: list[Any] = await connection.fetch(query, *point)
    except (asyncpg.SyntaxOrAccessError, asyncpg.DataError, asyncpg.QueryCanceledError) as error:
        raise InputError(
            f"invalid condition: {error}; write SQL over the columns of a decision, "
            "such as unit = 'bot-7' or context->>'intent' = 'spam'"
        ) from None
    return found


def _check_word(word: str, rest: str, place: int) -> None:
    if word.lower() in _QUERIES:
        raise _refused("has", place, f"{word!r}; subqueries are not allowed")
    if rest.lstrip().startswith("(") and word.lower() not in _CALLED:
        raise _refused(
            "calls", place, f"{word!r}; allowed functions are {', '.join(sorted(_CALLED))}"
        )


def _refused(does: str, place: int, what: str) -> InputError:
    return InputError(
        f"the condition {does} at character {place} {what}; write one expression over the columns "
        "of a decision, such as unit = 'bot-7'"
    )
