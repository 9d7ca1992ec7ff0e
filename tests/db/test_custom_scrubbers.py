"""Custom scrubbers: installed, missing and failing ones."""

from __future__ import annotations

import sys
from uuid import UUID, uuid4

import pytest

from steersman.db.declarations import declare
from steersman.errors import InputError
from steersman.privacy.declared_scrub import Scrubbing, check_scrubbers
from steersman.privacy.scrub import UNSCRUBBABLE, scrub
from steersman.spec.loader import loads

MODULE = """
import re

def names(text):
    return [match.span() for match in re.finditer("Bob|Ann Lee", text)]

def brackets(text):
    return [match.span() for match in re.finditer(r"\\[[a-z:]+\\]", text)]

def failing(text):
    if "Bob" in text:
        raise ValueError(text)
    return []

def outside(text):
    return [(0, len(text) + 1)]

def backwards(text):
    return [(2, 1)]

def vague(text):
    return [("0", 1.5)]

def nothing(text):
    return None

def one_at_a_time(text):
    place = text.rfind("q")
    return [(place, place + 1)] if place >= 0 else [(0, 0)]

constant = 7
"""
NAMES = [
    "names",
    "brackets",
    "failing",
    "outside",
    "backwards",
    "vague",
    "nothing",
    "one_at_a_time",
]
POINT = """
format: 1
skill: support
decision: route
context: {fields: {text: {type: text}}}
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution with scrubbers for one test."""
    module = f"scrubbers_{uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    folder = tmp_path / "own_scrubbers-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own-scrubbers\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{name}" for name in [*NAMES, "constant", "absent"]]
    lines.append("broken = no_such_module_anywhere:names")
    (folder / "entry_points.txt").write_text("\n".join(["[steersman.scrubbers]", *lines]))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(module, None)


@pytest.mark.usefixtures("installed")
def test_what_it_names_is_taken_out():
    text = "Bob (bob@example.org) met Ann Lee"
    assert scrub(text, ["email", "custom:names"]) == (
        "[custom:names] ([email]) met [custom:names]",
        {"email": 1, "custom:names": 2},
    )
    hashed, _ = scrub("Bob, Bob", ["custom:names"], how="hash", key=b"k")
    first, second = hashed.split(", ")
    assert first == second
    assert scrub(hashed, ["custom:names", "email", "ip"], how="hash", key=b"k")[0] == hashed


@pytest.mark.usefixtures("installed")
def test_what_stands_in_for_something_is_not_taken_out_again():
    text = "[email] of a@b.org, [here]"
    once, _ = scrub(text, ["email", "custom:brackets"])
    assert once == "[email] of [email], [custom:brackets]"
    assert scrub(once, ["email", "custom:brackets"]) == (once, {})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["failing", "outside", "backwards", "vague", "nothing"])
def test_a_text_that_it_fails_on_is_not_kept(name, caplog):
    assert scrub("Bob a@b.org", ["email", f"custom:{name}"]) == (
        UNSCRUBBABLE,
        {"unscrubbable": 1},
    )
    assert "Bob" not in caplog.text
    assert f"custom:{name}" in caplog.text


@pytest.mark.usefixtures("installed")
def test_a_text_that_does_not_come_to_rest_is_not_kept():
    assert scrub("qq Bob", ["custom:one_at_a_time"])[1] == {"custom:one_at_a_time": 2}
    assert scrub("q" * 20, ["custom:one_at_a_time"]) == (UNSCRUBBABLE, {"unscrubbable": 1})


@pytest.mark.usefixtures("installed")
def test_one_text_that_fails_leaves_the_others_alone():
    scrubbing = Scrubbing(["custom:failing"], "mask", declared=["a", "b"])
    context, counts = scrubbing.context({"a": "Bob", "b": "Ann"}, b"s" * 32, UUID(int=1))
    assert context == {"a": UNSCRUBBABLE, "b": "Ann"}
    assert counts == {"unscrubbable": 1}


def test_nothing_is_kept_where_it_is_not_installed(caplog):
    scrubbing = Scrubbing(["email", "custom:elsewhere"], "mask")
    body, counts = scrubbing.body({"a": ["Bob"]}, b"s" * 32, UUID(int=1))
    assert list(body.values()) == [[UNSCRUBBABLE]]
    assert counts["unscrubbable"] == 2
    assert "install the package" in caplog.text


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nmaes", "no such scrubber is installed; installed are .*names.*; install the "),
        ("broken", r"cannot load scrubber .*: ModuleNotFoundError.*; fix its package"),
        ("absent", r"cannot load scrubber .*: AttributeError.*; fix its package"),
        ("constant", "is a int; expected a callable"),
    ],
)
def test_a_declaration_names_what_can_be_called(name, told):
    point = loads(f"{POINT}privacy: {{scrub: ['custom:{name}']}}\n")
    with pytest.raises(InputError, match=told):
        check_scrubbers(point)


@pytest.mark.usefixtures("installed")
async def test_it_is_checked_when_a_point_is_declared(database, tenant):
    with pytest.raises(InputError, match="'custom:nmaes'"):
        await declare(
            database, tenant.id, f"{POINT}privacy: {{scrub: ['custom:nmaes']}}\n", actor="test"
        )
    declared = f"{POINT}privacy: {{scrub: ['custom:names']}}\n"
    assert (await declare(database, tenant.id, declared, actor="test")).spec.privacy.scrub
