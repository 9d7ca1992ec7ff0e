"""What can be imported from where, and what that loads."""

import subprocess
import sys

import pytest

import steersman
import steersman.client
import steersman_client
import steersman_client.errors
from steersman.errors import SteersmanError

ROOTS = {"steersman", "numpy", "scipy", "asyncpg", "aiohttp", "urllib3"}


def loaded_by(code, *, without=()):
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    code = f"import sys\n{blocked}{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", steersman_client.__all__)
def test_the_server_distribution_has_every_name_of_the_client(name):
    assert getattr(steersman.client, name) is getattr(steersman_client, name)


def test_the_exports_are_equal_and_hold_all_errors():
    assert steersman.client.__all__ == steersman_client.__all__
    assert set(steersman_client.errors.__all__) <= set(steersman_client.__all__)


def test_errors_of_the_client_form_a_tree_apart_from_the_service():
    for name in steersman_client.errors.__all__:
        kind = getattr(steersman_client.errors, name)
        assert issubclass(kind, steersman_client.ClientError)
        assert not issubclass(kind, SteersmanError)


def test_the_client_stands_alone():
    assert not loaded_by("import steersman_client") & ROOTS


def test_the_client_decides_without_opentelemetry(server, tmp_path):
    code = f"""
from steersman_client import Client
with Client({server.url!r}, "key", queue_dir={str(tmp_path)!r}) as client:
    assert client.decide("mail", "tone", {{}}).action == "a"
"""
    loaded_by(code, without=["opentelemetry"])
    assert "traceparent" not in server.calls[0]["headers"]


def test_importing_steersman_imports_no_numpy():
    assert not loaded_by("import steersman") & (ROOTS - {"steersman"} | {"steersman_client"})


def test_main_names_come_from_the_package_lazily():
    code = "from steersman import Client\nassert 'numpy' not in sys.modules"
    assert "steersman_client" in loaded_by(code)
    code = (
        "from steersman import Client, LinTS, LinUCB, BetaThompson, evaluate, LoggedData\n"
        "policy = LinTS(['a', 'b'], 2)\nassert policy.actions"
    )
    assert "numpy" in loaded_by(code)


def test_every_exported_name_exists_and_others_are_refused():
    for name in steersman.__all__:
        assert getattr(steersman, name).__name__ == name
    assert set(steersman.__all__) <= set(dir(steersman))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        steersman.nope  # noqa: B018 (reading it is the test)
