"""How far an evaluation is: lines where there is no terminal, each part's end before the next."""

import numpy as np

from steersman_systems.evidence_selection.commands import progress as evidence_progress
from steersman_systems.evidence_selection.commands.progress import ProgressReport


class Embedding:
    """An embedder that has all at once."""

    name, size = "made", 2

    def encode(self, texts):
        return np.ones((len(texts), 2), np.float32)


def worked(*, quiet):
    with ProgressReport(quiet=quiet) as telling:
        embedder = telling.embedded(Embedding())
        telling.part("reading")
        assert embedder.encode(["a"] * 150).shape == (150, 2)
        embedder.encode(["a"] * 20)
        advance = telling.part("selecting", 40)
        for _ in range(20):
            advance(1)
        telling.part("intervals")
        return [(one.description, one.total, one.completed) for one in telling._bar.tasks]


def test_lines_tell_parts_tenths_and_what_takes_long_to_embed(capsys):
    worked(quiet=False)
    tenths = [f"selecting: {share} %" for share in (10, 20, 30, 40, 50)]
    said = capsys.readouterr()
    expected = ["reading", "150 texts embedded and cached", "selecting", *tenths, "intervals"]
    assert said.err.splitlines() == expected
    assert not said.out


def test_quiet_is_quiet(capsys):
    worked(quiet=True)
    assert capsys.readouterr() == ("", "")


def test_at_a_terminal_what_is_over_is_full_also_where_some_was_left_out(monkeypatch, capsys):
    monkeypatch.setattr(evidence_progress.sys.stderr, "isatty", lambda: True)
    tasks = worked(quiet=False)
    assert tasks == [("reading", 150, 150), ("selecting", 20, 20), ("intervals", None, 0)]
    assert "150 texts embedded" not in capsys.readouterr().err


def test_what_failed_is_not_shown_as_done(monkeypatch):
    monkeypatch.setattr(evidence_progress.sys.stderr, "isatty", lambda: True)
    telling = ProgressReport(quiet=False)
    telling.__enter__()
    telling.part("reading", 10)(3)
    telling.__exit__(ValueError, ValueError("broken"), None)
    (task,) = telling._bar.tasks
    assert (task.completed, task.total) == (3, 10)
