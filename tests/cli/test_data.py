"""``steersman data record``: unwritable outputs are refused before the work."""

import pytest
from click.testing import CliRunner

from steersman.cli import main

SYSTEMS = ["assistant", "interrogator"]


class BegunError(Exception):
    """The work was begun."""


@pytest.fixture(autouse=True)
def nothing_is_recorded(monkeypatch):
    def begin(*_given, **_named):
        raise BegunError

    monkeypatch.setattr("steersman_systems.assistant.requests.load_catalogue", begin)
    monkeypatch.setattr("steersman_systems.interrogator.questions.load_questions", begin)


def record(system, out):
    return CliRunner().invoke(main, ["data", "record", system, "--out", str(out)])


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", ["said.json", "said.JSON"])
def test_a_recording_is_not_written_over_by_its_provenance(system, name, tmp_path):
    refused = record(system, tmp_path / name)
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert f"{name} is the file of the provenance; use another name, such as x.npz" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("system", SYSTEMS)
def test_where_nothing_can_be_written_nothing_is_recorded(system, tmp_path):
    (tmp_path / "said.json").mkdir()
    (tmp_path / "file").write_text("")
    for out, said in [
        ("-", "invalid file '-': expected a file, not standard output"),
        (tmp_path / "said.npz", "said.json cannot be written"),
        (tmp_path / "file" / "said.npz", "said.npz cannot be written because of"),
    ]:
        refused = record(system, out)
        assert refused.exit_code == 1
        assert said in " ".join(refused.output.split())


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_can_be_written_is_recorded(system, tmp_path):
    assert isinstance(record(system, tmp_path / "new" / "said.npz").exception, BegunError)
