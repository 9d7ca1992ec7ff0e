"""Schema catalogue: policies, grants and functions are as designed.

Lists come from the catalogue, so that new objects must be safe or listed here.
"""

from __future__ import annotations

import pytest

from tests.db.rows import connected
from tests.db.schema import PARTITIONS, SCHEMA, VIEWS, column, outcome


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


async def test_every_table_of_tenants_has_forced_security_and_its_policy(server):
    loose = await column(
        server,
        f"""SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p') AND c.relname <> 'migration'
          AND NOT (c.relrowsecurity AND c.relforcerowsecurity)""",
    )
    assert loose == []
    without = await column(
        server,
        f"""SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> 'migration' AND NOT EXISTS (
            SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polcmd = '*'
              AND p.polpermissive AND p.polroles = '{{0}}'
              AND pg_get_expr(p.polqual, c.oid) = pg_get_expr(p.polwithcheck, c.oid)
              AND pg_get_expr(p.polqual, c.oid) LIKE '%current_setting(''app.tenant''%')""",
    )
    assert without == []


async def test_other_policies_are_those_that_were_meant(server):
    others = await column(
        server,
        """SELECT format('%s %s %s %s', polrelid::regclass, polname, polcmd, polroles::regrole[])
        FROM pg_policy WHERE polroles <> '{0}' ORDER BY 1""",
    )
    assert others == [
        "api_key presented r {steersman_app}",
        "rollout_task see_all r {steersman_worker}",
        "tenant administer r {steersman_owner}",
        "work done_all d {steersman_worker}",
        "work see_all r {steersman_worker}",
    ]


async def test_rows_of_tenants_carry_their_tenant_in_the_primary_key(server):
    # Else a unique index would tell that somebody else has an id already.
    loose = await column(
        server,
        f"""SELECT i.indexrelid::regclass::text FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indrelid
        WHERE c.relnamespace = {SCHEMA} AND i.indisunique AND c.relname <> 'migration'
          AND NOT EXISTS (SELECT FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND a.attnum = ANY (i.indkey))
        ORDER BY 1""",
    )
    # Nobody but the owner inserts tenants, and the queue numbers its own rows.
    assert loose == ["tenant_name_key", "tenant_pkey", "work_pkey"]


async def test_foreign_keys_stay_within_a_tenant(server):
    loose = await column(
        server,
        f"""SELECT k.conname FROM pg_constraint AS k WHERE k.connamespace = {SCHEMA}
          AND k.contype = 'f' AND NOT EXISTS (SELECT FROM pg_attribute AS a
            WHERE a.attrelid = k.conrelid AND a.attname = 'tenant'
              AND a.attnum = ANY (k.conkey))""",
    )
    assert loose == []


async def test_partitions_are_reached_through_their_table_alone(server):
    async with connected(server, "owner") as connection:
        partitions = await connection.fetch(PARTITIONS)
        assert len(partitions) >= 2 * 4  # of four days, from yesterday on
        for oid, name in partitions:
            granted = await connection.fetch(
                "SELECT grantee::regrole::text, privilege_type FROM pg_class, aclexplode(relacl) "
                "WHERE oid = $1 AND grantee <> relowner",
                oid,
            )
            assert granted == [], name
            policies = await connection.fetch("SELECT FROM pg_policy WHERE polrelid = $1", oid)
            assert policies == [], name


async def test_views_read_with_the_rights_of_who_asks(server):
    views = await column(server, VIEWS)
    assert views == ["outcome"]
    plain = await column(
        server,
        f"""SELECT relname FROM pg_class WHERE relnamespace = {SCHEMA} AND (relkind = 'm' OR
        relkind = 'v' AND NOT 'security_invoker=true' = ANY (coalesce(reloptions, '{{}}')))""",
    )
    assert plain == []


async def test_functions_run_with_the_rights_of_who_asks_and_find_what_they_mean(server):
    functions = await column(
        server,
        f"SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = {SCHEMA}",
    )
    assert len(functions) >= 4
    loose = await column(
        server,
        f"""SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = {SCHEMA}
        AND (prosecdef OR proleakproof OR proconfig IS NULL
             OR NOT proconfig::text ~ 'search_path=(steersman|pg_catalog)')""",
    )
    assert loose == []


async def test_roles_can_do_no_more_than_they_have_to(server):
    strong = await column(
        server,
        """SELECT rolname FROM pg_roles WHERE rolname LIKE 'steersman\\_%'
        AND rolname ~ '_(app|worker|owner)$' AND (rolsuper OR rolbypassrls OR rolcanlogin
        OR rolcreaterole OR rolcreatedb OR rolreplication)""",
    )
    assert strong == []
    memberships = await column(
        server,
        """SELECT roleid::regrole::text FROM pg_auth_members
        WHERE member::regrole::text LIKE 'steersman\\_%'""",
    )
    assert memberships == []


async def test_nothing_is_granted_to_everybody(server):
    granted = await column(
        server,
        f"""SELECT relname || ' ' || a.privilege_type FROM pg_class, aclexplode(relacl) AS a
        WHERE relnamespace = {SCHEMA} AND a.grantee = 0
        UNION ALL
        SELECT p.oid::regprocedure || ' ' || a.privilege_type FROM pg_proc AS p,
          aclexplode(coalesce(proacl, acldefault('f', proowner))) AS a
        WHERE pronamespace = {SCHEMA} AND a.grantee = 0
        UNION ALL
        SELECT nspname || ' ' || a.privilege_type FROM pg_namespace, aclexplode(nspacl) AS a
        WHERE oid = {SCHEMA} AND a.grantee = 0""",
    )
    assert granted == []


async def test_grants_are_those_that_were_meant(server):
    granted = await column(
        server,
        f"""SELECT format('%s %s %s', a.grantee::regrole, lower(a.privilege_type),
            string_agg(c.relname, ' ' ORDER BY c.relname))
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.relnamespace = {SCHEMA} AND a.grantee <> c.relowner
          AND a.privilege_type <> 'SELECT'
        GROUP BY a.grantee, a.privilege_type ORDER BY 1""",
    )
    assert granted == [
        "steersman_app delete answer_cache",
        "steersman_app insert answer_cache api_key audit decision event idempotency work",
        "steersman_worker delete checkpoint rollout_task work",
        (
            "steersman_worker insert audit checkpoint excluded incident learner reward rollout "
            "rollout_task snapshot spec update verdict work"
        ),
        "steersman_worker update learner",
    ]
    columns = await column(
        server,
        """SELECT format('%s %s %s.%s', x.grantee::regrole, lower(x.privilege_type),
            a.attrelid::regclass, a.attname)
        FROM pg_attribute AS a, aclexplode(a.attacl) AS x WHERE a.attacl IS NOT NULL
          AND (SELECT relnamespace FROM pg_class WHERE oid = a.attrelid) = 'steersman'::regnamespace
        ORDER BY 1""",
    )
    assert columns == [
        *(
            f"steersman_app insert review.{name}"
            for name in (
                *("at", "detector", "excerpt", "id", "kinds", "score", "subject", "tenant"),
            )
        ),
        "steersman_app update answer_cache.used_at",
        "steersman_app update answer_cache.value",
        "steersman_app update api_key.revoked_at",
        *(
            f"steersman_worker update {name}"
            for name in (
                *("decision_point.feature_hash", "decision_point.per_episode"),
                *("decision_point.pinned_by", "decision_point.pinned_seq"),
                "decision_point.snapshot",
                *("decision_point.spec_hash", "decision_point.updated_at"),
                "incident.closed_at",
                *("rollout.ended_at", "rollout.epoch", "rollout.holder", "rollout.reason"),
                *("rollout.seen_at", "rollout.share", "rollout.stage", "rollout.status"),
                *("rollout.step", "rollout.step_started_at", "rollout_task.due_at"),
                *("snapshot.description", "snapshot.published_at", "snapshot.retracted_at"),
            )
        ),
    ]


@pytest.mark.parametrize("role", ["app", "worker"])
async def test_who_serves_cannot_truncate_or_make_things(server, role):
    async with connected(server, role) as connection:
        for statement in (
            "TRUNCATE decision",  # row-level security does not hold it
            "CREATE TABLE mine (a int)",
            "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT * FROM migration",
            "SELECT make_partitions('2020-01-01', 1)",
            "ALTER TABLE decision NO FORCE ROW LEVEL SECURITY",
            "SELECT nextval('work_id_seq')",
            "COPY decision FROM STDIN",
        ):
            refused = await outcome(connection, None, statement)
            assert refused in {"InsufficientPrivilegeError", "FeatureNotSupportedError"}, statement
        for _, name in await connection.fetch(PARTITIONS):
            refused = await outcome(connection, None, f"SELECT FROM {name}")
            assert refused == "InsufficientPrivilegeError"
