"""The console commands of docs/tutorial, run in order in a shell against one service."""

import re
import shutil
from pathlib import Path

import pytest

from steersman.cli.running_service import served
from steersman_systems.assistant.points import point_documents
from tests.examples.pages import commands, environment, type_in
from tests.learning.shipping_world import PASSPHRASE

FOLDER = Path("docs/tutorial")
PAGES = [
    FOLDER / f"{name}.md"
    for name in (
        "install-and-run",
        "declare-a-decision-point",
        "check-learning",
        "publish-and-roll-out",
    )
]
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DECIDED = re.compile(rf"decision[_ ]id\W+({UUID.pattern})")


def test_the_tutorial_is_short():
    pages = sorted(FOLDER.glob("*.md"))
    assert pages == sorted(PAGES)
    assert sum(len(page.read_text().split()) for page in pages) <= 5000


def test_the_page_shows_the_declaration_of_the_example():
    shown = re.search(r"```yaml\n(.*?)```", PAGES[1].read_text(), flags=re.DOTALL).group(1)
    assert shown == Path("examples/three_models/model.yaml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_command_of_the_tutorial_works(home, tmp_path):
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(Path(name).absolute())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        with served(home, "sample", point_documents(), controller=True) as service:
            ours = environment(
                home,
                STEERSMAN_URL=service.urls[0],
                STEERSMAN_API_KEY=service.key,
                STEERSMAN_ROOT_PASSPHRASE=PASSPHRASE,
            )
            type_in("steersman snapshot keys init", ours, tmp_path)
            outputs = []
            for page in PAGES:
                outputs += _run_page(page, ours, tmp_path)
    output = "\n".join(outputs)
    assert '"recomputed":{"same":true' in output
    assert "ok    service" in output
    assert "events waiting for delivery: 0" in output
    assert re.search(r"support +model +yes +150\d", output)
    assert re.search(r"floor +0\.1 → 0\.05", output)
    assert re.search(r"promote +next_stage", output)
    assert re.search(r"status +rolled_back|status +aborted", output)


def _run_page(page: Path, ours: dict[str, str], folder: Path) -> list[str]:
    """Run a page; the first decision id that a page prints replaces the id in later commands."""
    outputs: list[str] = []
    decided = None
    for command in commands(page, but=("make up", "export ")):
        typed = UUID.sub(decided, command) if decided else command
        outputs.append(type_in(typed, ours, folder))
        found = DECIDED.search(outputs[-1])
        decided = decided or (found.group(1) if found else None)
    return outputs
