"""Errors of the client end a command with status 1 and their message."""

import json

import pytest
from click.testing import CliRunner

from steersman.cli import main

AWAY = ["--url", "http://127.0.0.1:9", "--api-key", "key"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_HOME", str(tmp_path))
    return tmp_path


def refused(*arguments):
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 1, result.output
    assert not isinstance(result.exception, ValueError | RuntimeError)
    return result


def test_decide_without_a_service_says_what_to_check():
    said = refused("decide", "mail", "tone", "--timeout-ms", "100", *AWAY).output
    assert "Error: POST /v1/decide: no usable answer in 100 ms" in said
    assert "check that the service runs" in said


def test_decide_with_a_wrong_features_object_names_it():
    said = refused("decide", "a", "b", "--features", '{"a": 1}', *AWAY).output
    assert "features must hold a list of numbers" in said


def test_decide_with_a_bad_key_does_not_show_it():
    said = refused("decide", "a", "b", "--url", "http://localhost", "--api-key", "two words").output
    assert "api_key must be" in said
    assert "two words" not in said


def test_events_that_wait_are_counted_and_kept():
    sending = ("events", "send", "task_result", "--episode", "e", "--wait-s", "0", "--json", *AWAY)
    result = refused(*sending)
    assert json.loads(result.stdout)["waiting"] == 1
    assert "Error: 1 events are undelivered and stay on disk" in result.stderr


def test_events_that_the_service_would_refuse_are_named():
    sent = refused(
        "events", "send", "task_result", "--episode", "has space", "--wait-s", "0", *AWAY
    )
    assert "printable ASCII without spaces" in sent.output


def test_status_without_a_service_says_so():
    assert "does not answer" in refused("status", *AWAY).output
