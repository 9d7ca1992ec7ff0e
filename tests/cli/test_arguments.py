"""Arguments and options of commands: accepted values and usage errors."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steersman.cli import main
from steersman.cli.arguments import Folder
from steersman.cli.data_store import cold_place
from steersman.cli.options import url_of
from steersman.client import Client
from steersman.platform.wheel_files import state_directory


def said(*arguments, status, **environment):
    ran = CliRunner().invoke(main, list(arguments), env=environment)
    assert ran.exit_code == status, (ran.output, ran.exception)
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    return ran.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("key", "create", "x", "--days"),
        ("key", "rotate", "x", "--grace-s"),
        ("monitor", "--interval"),
        ("monitor", "--window"),
        ("events", "load", "-", "--wait-s"),
        ("decide", "a", "b", "--timeout-ms"),
        ("run", "assistant", "--wait"),
        ("tune", "sweep", "any", "--held-out"),
        ("rollout", "plan", "a", "b", "--effect"),
        ("rollout", "plan", "a", "b", "--sd"),
        ("rollout", "run", "--stale-s"),
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_is_a_finite_one(arguments, number, tmp_path):
    told = said(*arguments, number, status=2, STEERSMAN_HOME=str(tmp_path / "home"))
    assert "must be a finite number" in told or "not in the range" in told
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("days", ["1e10", "36501", "0"])
def test_a_key_of_centuries_is_refused(days, tmp_path):
    told = said("key", "create", "x", "--days", days, "--home", str(tmp_path / "h"), status=2)
    assert "not in the range 0<x<=36500" in told


def test_a_key_may_last_as_long_as_is_allowed(command):
    name = f"t-{datetime.now(UTC):%H%M%S%f}"
    command("tenant", "create", name)
    made = command.json("key", "create", "x", "--tenant", name, "--days", 36_500)
    ends = datetime.fromisoformat(made["expires_at"])
    assert ends - datetime.now(UTC) > timedelta(days=36_499)


def test_a_tilde_that_no_shell_read_is_the_home_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    assert Folder().convert("~/x", None, None) == tmp_path / "user" / "x"
    told = said("status", status=2, STEERSMAN_HOME="~/state", STEERSMAN_API_KEY=None)
    assert f"no store in {tmp_path / 'user' / 'state'}" in told
    assert not Path("~").exists()
    with pytest.raises(click.BadParameter, match="home directory"):
        Folder().convert("~nobody-of-that-name/x", None, None)


def test_a_tilde_in_the_environment_is_the_same_to_caches_cold_store_and_client(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STEERSMAN_HOME", "~/state")
    assert state_directory() == tmp_path / "state"
    assert cold_place(tmp_path, "~/cold") == str(tmp_path / "cold")
    assert cold_place(tmp_path, None) == str(tmp_path / "cold")
    assert cold_place(tmp_path, "s3://b/~/x") == "s3://b/~/x"
    with Client("http://127.0.0.1:9", "sk_x"):
        assert (tmp_path / "state" / "client").is_dir()


def test_json_that_is_too_deep_is_bad_usage():
    deep = "[" * 50_000
    assert "is not valid JSON" in said("decide", "a", "b", "--context", deep, status=2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{{"n": {"9" * 5000}}}', "out of range"),
        ('{"n": 1, "n": 2}', "duplicate key"),
        ('{"n": NaN}', "malformed"),
        ('{"n": "\\ud800"}', "is not valid JSON"),
        ('{"n": "\udcff"}', "surrogates not allowed"),
    ],
)
def test_json_is_read_as_the_service_reads_it(text, why):
    told = said("decide", "a", "b", "--context", text, status=2)
    assert "is not valid JSON" in told
    assert why in told


@pytest.mark.parametrize("command", ["doctor", "status", "monitor", "decide a b"])
@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://", "http://h:0", "http://h:x"])
def test_an_address_that_is_none_is_bad_usage(command, url, tmp_path):
    home = str(tmp_path / "home")
    told = said(*command.split(), "--url", url, status=2, STEERSMAN_HOME=home)
    assert "expected http(s)://host[:port]" in " ".join(told.split())


def test_an_address_may_end_with_a_stroke(asking, service):
    found = json.loads(asking("status", "--url", f"{service.urls[0]}/", "--json"))
    assert found["service"]["guardian_state"]


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [("127.0.0.1", 1, "http://127.0.0.1:1"), ("::1", 8712, "http://[::1]:8712")],
)
def test_an_address_is_told_so_that_it_can_be_asked(host, port, url):
    assert url_of(host, port) == url


@pytest.mark.parametrize("host", ["", " "])
def test_no_host_is_bad_usage(host, tmp_path):
    for command in ("up", "serve"):
        told = said(command, "--host", host, "--home", str(tmp_path / "h"), status=2)
        assert "must not be empty" in told


@pytest.mark.parametrize("port", ["0", "8712"])
def test_a_host_of_nobody_is_told(port, tmp_path):
    host = ("--host", "no.such.host.invalid", "--port", port)
    told = said("up", *host, "--home", str(tmp_path / "h"), status=1, DATABASE_URL="postgresql://x")
    assert "cannot listen on no.such.host.invalid" in told
