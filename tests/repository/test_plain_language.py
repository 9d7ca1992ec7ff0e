"""The language gate finds banned phrases wherever a line may break, and keeps defended ones."""

import pytest

from tools import plain_language


def phrases(tmp_path, text, name="page.md"):
    file = tmp_path / name
    file.write_text(text)
    return [(finding.line, finding.phrase) for finding in plain_language.find(file)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is no number.\n", [(1, "is no")]),
        ("Nobody knows; Whoever asks.\n", [(1, "nobody"), (1, "whoever")]),
        ("what is\nno number\n", [(1, "is no")]),
        ('x = (\n    "there are "\n    "no rows"\n)\n', [(2, "are no")]),
        ('x = f"there are " f"no {rows}"\n', [(1, "are no")]),
        ("# the caller is\n    # told\n", [(1, "is told")]),
        ("> it begins\n> anew\n", [(2, "anew")]),
        ("in a process of its own.\n", [(1, "of its own")]),
        ("in a process of its own for each\n", [(1, "of its own")]),
        ("one of its own fields\n", []),
        ("this noted; a new row; is not; renewed\n", []),
        ("x is no  # plain: ok - a name\n", []),
    ],
)
def test_a_banned_phrase_is_found_with_its_line(tmp_path, text, found):
    shown = [
        pair
        for pair in phrases(tmp_path, text)
        if "plain: ok" not in text.splitlines()[pair[0] - 1]
    ]
    assert shown == found


def test_a_defended_line_passes_and_another_fails(tmp_path, capsys):
    kept, bad = tmp_path / "kept.py", tmp_path / "bad.py"
    kept.write_text('USER = "nobody"  # plain: ok - name of a Unix user\n')
    bad.write_text("# it is no number\n")
    assert plain_language.main([str(kept)]) == 0
    assert plain_language.main([str(kept), str(bad)]) == 1
    assert "bad.py:1: 'is no'; write: is not a" in capsys.readouterr().out


def test_a_defence_without_a_reason_does_not_count(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1  # is no number  # plain: ok\n")
    assert plain_language.main([str(file)]) == 1


def test_every_defence_is_still_needed():
    used = {
        (finding.path, finding.phrase)
        for path in {path for path, _ in plain_language.DEFENDED}
        for finding in plain_language.find(plain_language.ROOT / path)
    }
    named = {entry for entry in plain_language.DEFENDED if entry[1]}
    assert named <= used


@pytest.mark.slow
def test_the_texts_of_the_project_pass(capsys):
    assert plain_language.main([]) == 0, capsys.readouterr().out
