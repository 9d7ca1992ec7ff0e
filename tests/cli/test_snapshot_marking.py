"""What is done must not look as if it were not, only because it could not be marked."""

from uuid import uuid4

import pytest

from steersman.cli.signing_keys import keys_of, mark_here
from steersman.platform.postgres.database import Database
from tests.kept import run

POINT = (uuid4(), "search", "depth")


@pytest.mark.parametrize("registry", ["ftp://nowhere/registry", None])
def test_what_cannot_be_marked_is_told_and_fails_nothing(tmp_path, monkeypatch, capsys, registry):
    keys = keys_of(tmp_path, "acme")
    keys.create("a long passphrase")
    keys.trusted_root.write_bytes(b"{}")
    if registry is not None:
        monkeypatch.setenv("STEERSMAN_REGISTRY", registry)
    database = Database("postgresql://nobody@127.0.0.1:1/none")  # nobody listens there
    run(mark_here(tmp_path, "acme", database, POINT))
    assert "mark not signed yet: " in capsys.readouterr().err
