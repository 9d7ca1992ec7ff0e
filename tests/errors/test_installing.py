"""The command that installs an extra fits where the package came from, and names no path."""

import json
from importlib.metadata import PackageNotFoundError

import pytest

from steersman.errors import install_hint as installing
from steersman.errors.install_hint import how_to_install

THERE = "in the checkout of Steersman"


class _Found:
    def __init__(self, said):
        self.said = said

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.said


@pytest.fixture(autouse=True)
def _asked_anew():
    installing._command.cache_clear()
    yield
    installing._command.cache_clear()


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ({"url": "file:///srv/x", "dir_info": {"editable": True}}, f"-e '.[data,rag]' {THERE}"),
        ({"url": "file:///srv/x", "dir_info": {}}, f"'.[data,rag]' {THERE}"),
        ({"url": "https://x/a.whl", "archive_info": {}}, "'steersman[data,rag]'"),
        (None, "'steersman[data,rag]'"),
    ],
)
def test_what_came_from_a_checkout_is_installed_from_there(monkeypatch, said, command):
    found = _Found(None if said is None else json.dumps(said))
    monkeypatch.setattr(installing, "distribution", lambda _: found)
    assert how_to_install("data", "rag") == f"pip install {command}"


def test_a_checkout_that_was_never_installed_is_one(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installing, "distribution", missing)
    assert how_to_install("s3") == f"pip install '.[s3]' {THERE}"
