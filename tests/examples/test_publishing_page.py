"""The commands of docs/how-to/publish-snapshots.md, typed one after the other into a shell."""

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
from tests.learn.shipping_world import PASSPHRASE

PAGE = Path("docs/how-to/publish-snapshots.md")
SIMULATE = "python examples/simulate_requests.py 120"


def commands():
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    return [command for command in typed if not command.startswith("export ")]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_every_command_of_the_page_works(home, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(Path(name).absolute())
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        with served(home, "sample", point_documents()) as service:
            environment |= {
                "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
                "STEERSMAN_URL": service.urls[0],
                "STEERSMAN_API_KEY": service.key,
                "STEERSMAN_HOME": str(home),
                "STEERSMAN_ROOT_PASSPHRASE": PASSPHRASE,
            }
            for command in (SIMULATE, *commands()):
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
                said[command] = ran.stdout
    told = "\n".join(said.values())
    assert re.search(r"version +0\.2\.1", told)
    assert re.search(r"parameters\n +alpha +0\.5 → 0\.2", told)
    assert re.search(r"same +yes", told)
    assert '"version":"0.2.1"' in told
