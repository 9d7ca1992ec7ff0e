"""The commands of docs/tutorial/into-service.md, typed one after the other into a shell."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from steersman.cli.serving import served
from steersman.systems.assistant.points import point_documents

PAGE = Path("docs/tutorial/into-service.md")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOT_TYPED = ("make up", "export ")


def _commands():
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    typed = []
    for line in "\n".join(blocks).splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif typed and typed[-1].endswith("\\"):
            typed[-1] = typed[-1][:-1] + line.strip()
    return [command for command in typed if not command.startswith(NOT_TYPED)]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_every_command_of_the_tutorial_works(home):
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        with served(home, "sample", point_documents()) as service:
            environment |= {
                "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
                "STEERSMAN_URL": service.urls[0],
                "STEERSMAN_API_KEY": service.key,
                "STEERSMAN_HOME": str(home),
            }
            said = {}
            decided = None
            for command in _commands():
                # The page names the decision that it was given; here it is another one.
                typed = UUID.sub(decided, command) if decided else command
                ran = subprocess.run(
                    [shutil.which("bash"), "-c", typed],
                    capture_output=True,
                    text=True,
                    env=environment,
                    timeout=120,
                    check=False,
                )
                assert ran.returncode == 0, (typed, ran.stdout, ran.stderr)
                said[command] = ran.stdout
                if decided is None:
                    decided = UUID.search(ran.stdout).group()
    told = "\n".join(said.values())
    assert '"recomputed":{"same":true' in told
    assert "events that wait for the service: 0" in told
    assert re.search(r"assistant +route +yes +40\d", told)
    assert "ok    service" in told
