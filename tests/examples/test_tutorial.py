"""The commands of docs/tutorial/into-service.md, typed one after the other into a shell."""

import re
import shutil
from pathlib import Path

import pytest

from steersman.cli.serving import served
from steersman.systems.assistant.points import point_documents
from tests.examples.pages import commands, environment, type_in

PAGE = Path("docs/tutorial/into-service.md")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_every_command_of_the_tutorial_works(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        with served(home, "sample", point_documents()) as service:
            ours = environment(home, STEERSMAN_URL=service.urls[0], STEERSMAN_API_KEY=service.key)
            said = []
            decided = None
            for command in commands(PAGE, but=("make up", "export ")):
                # The page names the decision that it was given; here it is another one.
                said.append(type_in(UUID.sub(decided, command) if decided else command, ours))
                decided = decided or UUID.search(said[-1]).group()
    told = "\n".join(said)
    assert '"recomputed":{"same":true' in told
    assert "events that wait for the service: 0" in told
    assert re.search(r"assistant +route +yes +40\d", told)
    assert "ok    service" in told
