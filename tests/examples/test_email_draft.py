"""The sample application against the real service: its traces are in SQL and in Parquet."""

import asyncio
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from email import policy
from pathlib import Path

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.running_service import served
from steersman.platform.postgres.database import as_tenant

APP = Path("examples/email_draft")
TYPES = ("feedback.submit", "interaction.create", "interaction.output", "task_result")


@pytest.fixture(scope="module")
def home():
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def service(database, home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", database.url)
        name = f"mail-{home.name.lower().replace('_', '-')}"
        with served(home, name, [(APP / "draft.yaml").read_text()], processes=1) as running:
            yield running


@pytest.fixture(scope="module")
def ran(service, home):
    environment = os.environ | {
        "STEERSMAN_URL": service.urls[0],
        "STEERSMAN_API_KEY": service.key,
        "STEERSMAN_HOME": str(home),
    }
    arguments = ["--script", APP / "inbox.jsonl", "--outbox", home / "outbox"]
    return subprocess.run(
        [sys.executable, APP / "email_draft.py", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    ).stdout.splitlines()


async def _rows(database, tenant, query):
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


@pytest.fixture
def sql(service):
    return lambda query: asyncio.run(_rows(service.database, service.tenant.id, query))


def test_every_message_is_drafted_and_sent_or_thrown_away(ran, home):
    tasks = [json.loads(line) for line in (APP / "inbox.jsonl").read_text().splitlines()]
    assert ran[-1] == "events that wait for the service: 0"
    assert len(ran) == len(tasks) + 1
    sent = list((home / "outbox").glob("*.eml"))
    assert len(sent) == sum(task.get("send", True) for task in tasks)
    message = email.message_from_bytes(sent[0].read_bytes(), policy=policy.default)
    assert message["To"] in {task["to"] for task in tasks}


def test_its_traces_are_visible_in_sql(ran, sql):
    count = len(ran) - 1
    assert sql("SELECT count(*) FROM decision WHERE p_kind = 'exact'") == [(count,)]
    found = sql("SELECT type, count(*), count(DISTINCT decision) FROM event GROUP BY 1 ORDER BY 1")
    assert found == [(name, count, count) for name in TYPES]
    names = sql("SELECT DISTINCT name FROM outcome ORDER BY name")
    assert names == [("edit_similarity",), ("seconds",), ("sent",)]


def test_what_is_personal_is_not_stored(ran, sql):
    # The declaration says so; the tasks name addresses and a telephone number.
    assert "+49 30" in (APP / "inbox.jsonl").read_text()
    stored = sql("SELECT body::text FROM event UNION ALL SELECT context::text FROM decision")
    assert not [text for (text,) in stored if text and ("+49" in text or "@example" in text)]
    assert [text for (text,) in stored if text and "[phone]" in text]


def test_what_people_changed_is_learned(ran, sql):
    deadline = time.monotonic() + 30
    # A decision of which only a part is known has a row without a value first.
    scored = "SELECT count(DISTINCT decision) FROM reward WHERE value IS NOT NULL"
    while sql(scored) < [(len(ran) - 1,)] and time.monotonic() < deadline:
        time.sleep(0.1)
    rewards = sql(
        "SELECT r.value, kept.value, sent.value FROM reward AS r "
        "JOIN outcome AS kept ON kept.decision = r.decision AND kept.name = 'edit_similarity' "
        "JOIN outcome AS sent ON sent.decision = r.decision AND sent.name = 'sent' "
        "WHERE r.value IS NOT NULL ORDER BY r.value"
    )
    assert all(0.0 <= value <= 1.0 for value, _, _ in rewards)
    assert {sent for _, _, sent in rewards[:2]} == {0.0}  # what was thrown away earned least
    assert rewards[-1][1] == max(similar for _, similar, _ in rewards)
    assert sql("SELECT count(DISTINCT decision) FROM update") == [(len(ran) - 1,)]


def test_its_traces_are_visible_in_parquet(ran, service, home, sql):
    name = service.tenant.name

    def run(*arguments):
        environment = {"DATABASE_URL": service.database.url, "STEERSMAN_HOME": str(home)}
        done = CliRunner().invoke(main, [*arguments, "--tenant", name, "--json"], env=environment)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    files = run("data", "compact", "--until", "2100-01-01")["written"]
    assert {file["dataset"] for file in files} == {"decision", "event", "reward"}
    for file in files:
        assert (home / "cold" / file["path"]).read_bytes()[:4] == b"PAR1"
    grouped = "SELECT type, count(*) AS n FROM event GROUP BY type ORDER BY type"
    assert run("data", "query", grouped) == [{"type": name, "n": len(ran) - 1} for name in TYPES]
    joined = (
        "SELECT count(*) AS n FROM decision AS d JOIN reward AS r ON r.decision = d.id "
        "WHERE d.action IN ('concise', 'friendly', 'formal') AND r.value IS NOT NULL"
    )
    assert run("data", "query", joined) == [{"n": len(ran) - 1}]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('\n{"to": "a@b.c", "kind": "x", "recipient": "boss", "notes": "n"}\n', "line 2 .*kind"),
        ("no JSON\n", "line 1 of the script is not a task"),
        ("\udcff\n", "can't decode byte"),
        (None, "No such file"),
    ],
)
def test_a_script_that_is_none_is_told(tmp_path, script, said):
    file = tmp_path / "script.jsonl"
    if script is not None:
        file.write_text(script, encoding="utf-8", errors="surrogateescape")
    done = subprocess.run(
        [sys.executable, APP / "email_draft.py", "--script", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(said, done.stderr)
    assert "Traceback" not in done.stderr
