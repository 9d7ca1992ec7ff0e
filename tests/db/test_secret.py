"""Service secret: created once, private, shared by all processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from steersman.db.secret import load_secret
from steersman.errors import StoreError


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.delenv("STEERSMAN_SECRET", raising=False)


def test_it_is_made_on_first_use_and_closed_to_others(tmp_path):
    made = load_secret(tmp_path / "home")
    assert len(made) == 32
    assert load_secret(tmp_path / "home") == made
    assert (tmp_path / "home" / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["secret"]


def test_many_who_start_at_once_agree(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(load_secret, [tmp_path] * 64))
    assert len(made) == 1


def test_the_environment_names_another(tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_SECRET", "ab" * 32)
    assert load_secret(tmp_path) == b"\xab" * 32
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 33])
def test_what_is_no_secret_is_refused_and_not_shown(tmp_path, text):
    (tmp_path / "secret").write_text(text)
    with pytest.raises(StoreError, match="64 hex digits") as told:
        load_secret(tmp_path)
    assert not text or text not in str(told.value)
