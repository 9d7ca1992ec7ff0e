"""Approximate search over the vectors of a large corpus: pgvector's HNSW, where it is installed.

Each corpus that wants it has a table of its own, under the same row-level security as all others.
A graph over the vectors of several tenants would have to be walked past the others' vectors, which
starves results where a tenant has few, and times would tell how many there are. Of a corpus's own
graph only passages of other revisions are passed over, by an iterative scan that goes on until
enough were found. The tables can be made again from what is stored, and no backup holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np

from steersman.errors import CorpusError, InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.store.database import Database

HNSW_TABLES = "corpus_hnsw_*"
"""The names of these tables, as a pattern of pg_dump."""
_OLDEST = (0, 8)  # iterative scans; half vectors came with 0.7
_MOST_NUMBERS = 4_000  # of a half vector in an index
_BATCH = 1_000
_LOOKED_UP = 10_000
_OWN = "tenant = (SELECT nullif(current_setting('app.tenant', true), '')::uuid)"
_SCHEMA = (
    "SELECT n.nspname, e.extversion FROM pg_extension AS e "
    "JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)


async def ensure_pgvector(database: Database) -> None:
    """Install the extension into the database, if it is not there and the server has it.

    Args:
        database: whose own user must be allowed to, the first time.

    Raises:
        CorpusError: the server does not have it, only an older one than 0.8, or the user may not.
    """
    connection = await database.connect(None)
    try:
        row = await connection.fetchrow(_SCHEMA)
        if row is None:
            await _install(connection)
            row = await connection.fetchrow(_SCHEMA)
    finally:
        await connection.close()
    if row is None:
        raise CorpusError("pgvector was removed meanwhile; try again")
    version = tuple(int(part) for part in row["extversion"].split(".")[:2])
    if version < _OLDEST:
        message = f"this database has pgvector {row['extversion']}; 0.8 or later is needed: run "
        raise CorpusError(message + "ALTER EXTENSION vector UPDATE, or continue with exact search")


async def build_hnsw(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    *,
    dimension: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Make the index of a corpus anew; whoever searches meanwhile uses the one before.

    Args:
        connection: of role owner, within a transaction of the tenant that holds the corpus.
        tenant: whose.
        corpus: its id.
        dimension: of the vectors, 1 to 4,000.
        on_progress: told how many vectors are in so far.

    Returns:
        How many vectors the index holds.

    Raises:
        InputError: the vectors are too long for an index.
        CorpusError: pgvector is not installed in this database.
    """
    if dimension > _MOST_NUMBERS:
        message = f"the vectors have {dimension:,} dimensions; an index allows {_MOST_NUMBERS:,}; "
        raise InputError(message + "use exact search, or an embedder with fewer dimensions")
    schema = await _schema(connection)
    table, made = _table(corpus), _table(corpus) + "_new"
    await connection.execute(
        # No foreign key: making one locks the tenants of all as long as this takes. The policy says
        # whose rows these are, and they go with their corpus.
        f"CREATE TABLE {made} (tenant uuid NOT NULL, "
        f"hash bytea NOT NULL, vector {schema}.halfvec({dimension}) NOT NULL, "
        "PRIMARY KEY (tenant, hash));"
        f"ALTER TABLE {made} ENABLE ROW LEVEL SECURITY;"
        f"ALTER TABLE {made} FORCE ROW LEVEL SECURITY;"
        f"CREATE POLICY own_rows ON {made} USING ({_OWN}) WITH CHECK ({_OWN});"
        f"GRANT SELECT ON {made} TO steersman_app"
    )
    count = await _fill(connection, tenant, corpus, made, on_progress)
    await connection.execute(
        f"CREATE INDEX {made}_graph ON {made} USING hnsw (vector {schema}.halfvec_cosine_ops) "
        "WITH (m = 16, ef_construction = 100)"
    )
    await connection.execute(f"ANALYZE {made}")
    # Last, so that who searches waits for nothing that takes long.
    await drop_hnsw(connection, corpus)
    await connection.execute(
        f"ALTER TABLE {made} RENAME TO {table};"
        f"ALTER INDEX {made}_pkey RENAME TO {table}_pkey;"
        f"ALTER INDEX {made}_graph RENAME TO {table}_graph"
    )
    return count


async def extend_hnsw(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Put vectors of passages into the index that are not in it; none that is there goes.

    Args:
        connection: of role owner, within a transaction of the tenant that holds the corpus.
        tenant: whose.
        corpus: its id; one without an index is passed over.
        on_progress: told how many vectors are in so far.

    Returns:
        How many were put in.
    """
    if not await has_hnsw(connection, corpus):
        return 0
    return await _fill(connection, tenant, corpus, _table(corpus), on_progress)


async def thin_hnsw(connection: Any, tenant: UUID, corpus: UUID) -> int:
    """Take vectors out of the index that no revision of the corpus has any more.

    Args:
        connection: of role owner, within a transaction of the tenant.
        tenant: whose.
        corpus: its id; one without an index is passed over.

    Returns:
        How many were taken out.
    """
    if not await has_hnsw(connection, corpus):
        return 0
    status: str = await connection.execute(
        f"DELETE FROM {_table(corpus)} AS t WHERE NOT EXISTS (SELECT FROM corpus_passage AS p "  # noqa: S608
        "WHERE p.tenant = $1 AND p.corpus = $2 AND p.hash = t.hash)",
        *(tenant, corpus),
    )
    return int(status.rsplit(maxsplit=1)[-1])


async def drop_hnsw(connection: Any, corpus: UUID) -> None:
    """Remove the index of a corpus; without one, do nothing.

    Args:
        connection: of role owner, within a transaction.
        corpus: its id.
    """
    await connection.execute(f"DROP TABLE IF EXISTS {_table(corpus)}")


async def has_hnsw(connection: Any, corpus: UUID) -> bool:
    """Return whether a corpus has an index.

    Args:
        connection: of any role.
        corpus: its id.

    Returns:
        False too after a restore, since backups hold no index.
    """
    return await hnsw_id(connection, corpus) is not None


async def hnsw_id(connection: Any, corpus: UUID) -> int | None:
    """Return which index a corpus has; one that is made anew is another.

    Args:
        connection: of any role; what was committed since its transaction began is seen as well.
        corpus: its id.

    Returns:
        The object id of its table; None: it has no index.
    """
    table = f"steersman.{_table(corpus)}"
    found: int | None = await connection.fetchval("SELECT to_regclass($1)::oid", table)
    return found


async def sees_hnsw(connection: Any, corpus: UUID) -> bool:
    """Return whether a transaction sees what the index of a corpus holds.

    One that is made anew has its name at once, also for who sees one state of the database from
    before; to them it is empty.

    Args:
        connection: of any role, within a transaction.
        corpus: its id.

    Returns:
        False too without an index.
    """
    table = f"steersman.{_table(corpus)}"
    # A row of the catalogue is seen as any row is, while names are those of this moment.
    sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass($1)::oid)"
    seen: bool = await connection.fetchval(sql, table)
    return seen


async def indexed_by_hnsw(
    connection: Any, tenant: UUID, corpus: UUID, hashes: Sequence[bytes]
) -> int:
    """Return how many of some texts the index has vectors of.

    Args:
        connection: of role app, within a transaction of the tenant.
        tenant: whose.
        corpus: its id, of one that has an index.
        hashes: of the texts, none twice.

    Returns:
        At most as many as there are hashes.

    Raises:
        StoreError: the index is gone.
    """
    count = 0
    for first in range(0, len(hashes), _LOOKED_UP):
        try:
            count += await connection.fetchval(
                f"SELECT count(*) FROM {_table(corpus)} WHERE tenant = $1 AND hash = ANY($2)",  # noqa: S608 (a name of ours)
                *(tenant, list(hashes[first : first + _LOOKED_UP])),
            )
        except asyncpg.UndefinedTableError as error:
            message = "the index of the corpus was removed meanwhile; open the corpus again"
            raise StoreError(message) from error
    return count


async def search_hnsw(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    revision: int,
    vector: NDArray[np.float32],
    k: int,
    *,
    breadth: int = 400,
) -> list[tuple[bytes, float]]:
    """Return the passages of a revision that are nearest to a vector.

    Args:
        connection: of role app, within a transaction of the tenant; settings of pgvector are set
            for this transaction.
        tenant: whose.
        corpus: its id, of one that has an index.
        revision: of it.
        vector: (dimension,) of length one.
        k: how many, ≥ 1.
        breadth: how many candidates are kept while the graph is walked, 1 to 1,000: more find
            more, and take longer. Of 5,000 random vectors of 384 numbers, which are as hard as it
            gets, 100 find .80 of the ten nearest, 200 .94, 400 .99.

    Returns:
        Hashes and cosines, best first; fewer where the revision has fewer.

    Raises:
        StoreError: the index is gone, or another vector was expected.
    """
    schema, table = await _schema(connection), _table(corpus)
    try:
        await connection.execute(
            "SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL enable_seqscan = off; "
            "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; "
            f"SET LOCAL hnsw.max_scan_tuples = 200000; SET LOCAL hnsw.ef_search = {int(breadth)}"
        )
        # As a subquery that is no join, so that the graph stays what leads.
        rows = await connection.fetch(
            f"SELECT hash, 1 - (vector OPERATOR({schema}.<=>) $4::real[]::{schema}.halfvec) "  # noqa: S608
            f"FROM {table} AS t WHERE (SELECT true FROM corpus_passage AS p "
            "WHERE p.tenant = $1 AND p.corpus = $2 AND p.hash = t.hash AND p.added <= $3 "
            "AND (p.removed IS NULL OR p.removed > $3) LIMIT 1) "
            f"ORDER BY vector OPERATOR({schema}.<=>) $4::real[]::{schema}.halfvec LIMIT $5",
            *(tenant, corpus, revision, vector.tolist(), k),
        )
    except (asyncpg.UndefinedTableError, asyncpg.DataError) as error:
        message = f"cannot search the index of the corpus: {error}; open the corpus again "
        message += "to use its current index (a running service does this automatically)"
        raise StoreError(message) from error
    return [(row[0], row[1]) for row in rows]


async def _install(connection: Any) -> None:
    advice = "search stays exact without it"
    there = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    if await connection.fetchval(there) is None:
        message = "the PostgreSQL server lacks pgvector; install it there (the embedded server "
        raise CorpusError(f"{message}has it); {advice}")
    try:
        await connection.execute("CREATE EXTENSION vector WITH SCHEMA public")
    except asyncpg.DuplicateObjectError:
        return  # somebody else did it meanwhile
    except asyncpg.InsufficientPrivilegeError as error:
        message = f"the user of DATABASE_URL may not install pgvector ({error}); have an "
        message += "administrator run CREATE EXTENSION vector in this database"
        raise CorpusError(f"{message}; {advice}") from error


async def _fill(
    connection: Any, tenant: UUID, corpus: UUID, table: str, on_progress: Callable[[int], None]
) -> int:
    """Put in what is missing, and return how many that were."""
    schema = await _schema(connection)
    rows = await connection.fetch(
        "SELECT v.hash, v.vector FROM corpus AS c "  # noqa: S608 (a name of ours)
        "JOIN corpus_vector AS v ON v.tenant = $1 AND v.embedder = c.embedder_name "
        "WHERE c.tenant = $1 AND c.id = $2 "
        "AND v.hash IN (SELECT hash FROM corpus_passage WHERE tenant = $1 AND corpus = $2) "
        f"AND NOT EXISTS (SELECT FROM {table} AS t WHERE t.hash = v.hash)",
        *(tenant, corpus),
    )
    for first in range(0, len(rows), _BATCH):
        await connection.executemany(
            f"INSERT INTO {table} VALUES ($1, $2, $3::real[]::{schema}.halfvec)",  # noqa: S608
            [
                (tenant, key, np.frombuffer(vector, "<f2").astype(np.float32).tolist())
                for key, vector in rows[first : first + _BATCH]
            ],
        )
        on_progress(min(first + _BATCH, len(rows)))
    return len(rows)


async def _schema(connection: Any) -> str:
    """Return the schema of pgvector, quoted."""
    row = await connection.fetchrow(f"SELECT quote_ident(nspname) FROM ({_SCHEMA}) AS e")  # noqa: S608
    if row is None:
        message = (
            "this database lacks pgvector; run `steersman corpus index NAME --hnsw` to install it"
        )
        raise CorpusError(message)
    name: str = row[0]
    return name


def _table(corpus: UUID) -> str:
    return HNSW_TABLES.replace("*", corpus.hex)
