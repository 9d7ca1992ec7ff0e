"""The API key is sent to the service, and shows up nowhere else."""

import logging
import pickle
import traceback

import pytest

from steersman_client.errors import InputError, ServiceError
from steersman_client.settings import Settings


def test_the_key_is_in_no_repr_log_error_or_file(make, server, key, caplog, tmp_path):
    shown = []
    with caplog.at_level(logging.DEBUG):
        client = make(timeout_ms=500)
        shown.append(repr(client))
        for fault in [401, 404, 422, "drop", "garbage", "hang", 503]:
            server.always = fault
            client.submit_feedback(episode="e", outcomes={"good": 1})
            try:
                client.decide("mail", "tone", {})
            except ServiceError as error:
                shown += ["".join(traceback.format_exception(error)), repr(vars(error))]
        client.flush(0.2)
    shown += [record.getMessage() for record in caplog.records]
    shown += [repr(vars(client).get("_settings")), repr(client.backlog())]
    assert len(shown) > 10
    assert key not in "".join(shown)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert key not in file.name
        assert key.encode() not in file.read_bytes()


@pytest.mark.parametrize("wrong", ["has space", "line\nbreak", "naïve", "x" * 600])
def test_a_key_that_cannot_be_sent_is_refused_unseen(wrong):
    with pytest.raises(InputError) as raised:
        Settings.of("http://localhost", wrong)
    assert wrong not in str(raised.value)


def test_an_address_with_a_password_is_refused_unseen():
    with pytest.raises(InputError) as raised:
        Settings.of("http://me:secret@localhost", "key")
    assert "secret" not in str(raised.value)


def test_errors_of_the_service_travel_between_processes(client, server):
    server.script = [404]
    with pytest.raises(ServiceError) as raised:
        client.decide("mail", "tone", {})
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 (our own)
    assert (str(again), again.problem) == (str(raised.value), raised.value.problem)
