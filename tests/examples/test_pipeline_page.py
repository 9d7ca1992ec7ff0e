"""The commands of docs/how-to/run-the-pipeline.md, typed one after the other into a shell."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from steersman.store import Database, create_tenant, declare, migrate
from steersman.systems.assistant.points import point_documents
from tests.learn.shipping_world import PASSPHRASE
from tests.learn.world import learn_all
from tests.systems.pipeline.world import traffic

PAGE = Path("docs/how-to/run-the-pipeline.md")


def commands():
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    return [command for command in typed if not command.startswith("export ")]


async def _logged(database):
    await migrate(database)
    tenant = await create_tenant(database, "sample", actor="test")
    rows = [await declare(database, tenant.id, text, actor="test") for text in point_documents()]
    await traffic(database, rows[1], 3000)
    await learn_all(database)


@pytest.fixture
def home():
    """A home whose server runs, with three thousand routed requests."""
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        database = Database.open(folder)
        asyncio.run(_logged(database))
        yield folder
        database.server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_every_command_of_the_page_works(home, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "STEERSMAN_HOME": str(home),
        "STEERSMAN_ROOT_PASSPHRASE": PASSPHRASE,
    }
    said = []
    for command in commands():
        ran = subprocess.run(
            [shutil.which("bash"), "-c", command],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        said.append(ran.stdout)
    told = "\n".join(said)
    assert "refused by max_standard_error" in told
    assert re.search(r"route +package +done +published 0\.2\.1", told)
    assert re.search(r"route +promote +waits", told)
    assert "status 1" in told
    assert re.search(r"status +aborted", told)
