"""The commands of docs/how-to/publish-snapshots.md, typed one after the other into a shell."""

import re
from pathlib import Path

import pytest

from steersman.cli.running_service import served
from steersman_systems.assistant.points import point_documents
from tests.examples.pages import commands, environment, type_in
from tests.learning.shipping_world import PASSPHRASE

PAGE = Path("docs/how-to/publish-snapshots.md")
SIMULATE = "python examples/simulate_requests.py 120"


@pytest.mark.slow
def test_every_command_of_the_page_works(home, tmp_path):
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(Path(name).absolute())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        with served(home, "sample", point_documents()) as service:
            ours = environment(
                home,
                STEERSMAN_URL=service.urls[0],
                STEERSMAN_API_KEY=service.key,
                STEERSMAN_ROOT_PASSPHRASE=PASSPHRASE,
            )
            said = [type_in(command, ours, tmp_path) for command in (SIMULATE, *commands(PAGE))]
    told = "\n".join(said)
    assert re.search(r"version +0\.2\.1", told)
    assert re.search(r"parameters\n +alpha +0\.5 → 0\.2", told)
    assert re.search(r"same +yes", told)
    assert '"version":"0.2.1"' in told
