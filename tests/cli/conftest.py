"""A home with a short path (a socket's may have a hundred characters), and a service to talk to."""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.running_service import Served, served
from steersman_systems.assistant.points import point_documents


@pytest.fixture(scope="module")
def database(database_alone):
    return database_alone


@pytest.fixture(scope="module")
def home():
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Command:
    """Runs the command with a home and an environment, and reads what it says."""

    home: Path
    environment: dict

    def __call__(self, *arguments, status=0, **options):
        ran = CliRunner().invoke(main, [str(a) for a in arguments], env=self.environment, **options)
        assert ran.exit_code == status, (arguments, ran.output, ran.exception)
        return ran.output

    def json(self, *arguments, status=0):
        ran = CliRunner().invoke(
            main, [*(str(a) for a in arguments), "--json"], env=self.environment
        )
        assert ran.exit_code == status, (arguments, ran.output, ran.exception)
        return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def command(database, home):
    """The command, over the database of this test process."""
    return Command(home, {"DATABASE_URL": database.url, "STEERSMAN_HOME": str(home)})


@pytest.fixture(scope="module")
def service(database, home):
    """Two real service processes and a learner, over the database of this test process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", database.url)
        with served(
            home, f"cli-{home.name.lower().replace('_', '-')}", point_documents()
        ) as running:
            yield running


@pytest.fixture(scope="module")
def asking(command, service: Served):
    """The command, as an application with a key uses it."""
    told = {"STEERSMAN_URL": service.urls[0], "STEERSMAN_API_KEY": service.key}
    return Command(command.home, command.environment | told)
