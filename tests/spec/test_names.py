"""Names of actions: what people cannot see, or read as the same, tells no two of them apart."""

import json
import unicodedata

import jsonschema_rs
import pytest

from steersman.errors import SpecError
from steersman.spec.base import _SPACES, _UNSEEN, repeats
from steersman.spec.loader import loads
from steersman.spec.schema import json_schema

TAKES = jsonschema_rs.validator_for(json_schema()).is_valid
DOCUMENT = {
    "format": 1,
    "skill": "assistant",
    "decision": "route",
    "policy": {"algorithm": "lin_ucb"},
    "floor": 0.02,
    "reward": {"terms": {"success": {"weight": 1.0}}},
}


def choice(*names):
    actions = {"kind": "choice", "names": ["micro", *names]}
    return {**DOCUMENT, "actions": actions, "fallback": {"otherwise": "micro"}}


def mixed(*values):
    parts = {"prefix": {"type": "categorical", "values": ["micro", *values]}}
    fallback = {"otherwise": {"prefix": "micro"}}
    policy = {"algorithm": "factored_ts"}
    actions = {"kind": "mixed", "parts": parts}
    return {**DOCUMENT, "actions": actions, "fallback": fallback, "policy": policy}


@pytest.mark.parametrize(
    "name",
    [
        "web search",
        "github.search/issues:read",
        "Überblick",
        "re\u0301sume\u0301",
        "搜索\u3000工具",
        "поиск",
        "\U0001f50d find",
        "\u2699\ufe0f",
        'a "b" (c) [d] {e}, f|g#h%i',
        "x" * 200,
    ],
)
def test_names_as_tools_have_them(name):
    for document in (choice(name), mixed(name)):
        assert TAKES(document)
        loads(json.dumps(document, ensure_ascii=False))


@pytest.mark.parametrize(
    "name",
    [
        *[
            "micro\u200b",
            "\u202emicro",
            "\ufeffmicro",
            "mi\xadcro",
            "a\x85b",
            "a\u2028b",
            "a\nb",
            "",
        ],
        *["micro\u034f", "\u3164", "\u115f\u1160", "\uffa0a", "a\u17b4", "\u2800"],
    ],
)
def test_what_nobody_sees_is_in_no_name(name):
    for document, field in (
        (choice(name), "actions.names[1]"),
        (mixed(name), "actions.parts.prefix.values[1]"),
    ):
        assert not TAKES(document)
        with pytest.raises(SpecError) as refused:
            loads(json.dumps(document))
        text = f"{field}: not a valid name; got {name!r}; allowed 1 to 200 printable, visible char"
        assert text in str(refused.value)
        assert str(refused.value).endswith("; rename it")


def test_tags_beyond_the_first_plane_are_found_by_the_loader():
    with pytest.raises(SpecError, match=r"actions.names\[1\]: not a valid name; got .*; rename it"):
        loads(json.dumps(choice("micro\U000e0041")))


@pytest.mark.parametrize("name", [" ", "micro ", " micro", "\xa0micro", "micro\u3000", "\u2003"])
def test_white_space_stands_within_names_only(name):
    document = choice(name)
    assert not TAKES(document)
    with pytest.raises(
        SpecError, match=r"names\[1\]: not a valid name; .* without white space at the ends; "
    ):
        loads(json.dumps(document))
    document = {**choice(), "fallback": {"otherwise": name}}
    assert not TAKES(document)
    with pytest.raises(SpecError, match=r"fallback.otherwise: not a valid name"):
        loads(json.dumps(document))
    # Values of a part may be such texts as "query: ", which stands before others.
    assert TAKES(mixed(name))
    loads(json.dumps(mixed(name)))


def test_names_are_compared_as_they_are_read():
    for document, field in (
        (choice, "actions.names[2]"),
        (mixed, "actions.parts.prefix.values[2]"),
    ):
        with pytest.raises(SpecError) as refused:
            loads(json.dumps(document("caf\u00e9", "cafe\u0301")))
        assert f"{field}: same name as an earlier one" in str(refused.value)
        twice = document("a", "a")
        assert not TAKES(twice)
        with pytest.raises(SpecError) as refused:
            loads(json.dumps(twice))
        assert f"{field}: named twice; got 'a'; allowed each name once; rem" in str(refused.value)


def test_variants_of_a_sign_are_one_name():
    for document, field in (
        (choice, "actions.names[2]"),
        (mixed, "actions.parts.prefix.values[2]"),
    ):
        for names in (("\u2699", "\u2699\ufe0f"), ("a\U000e0101", "a"), ("e\ufe00\u0301", "\xe9")):
            with pytest.raises(SpecError) as refused:
                loads(json.dumps(document(*names)))
            assert f"{field}: same name as an earlier one" in str(refused.value)
        with pytest.raises(SpecError, match="not a valid name"):
            loads(json.dumps(document("\ufe0f")))


def test_features_are_named_once_by_the_schema_too():
    document = choice()
    document["actions"] |= {"features": ["f", "f"]}
    assert not TAKES(document | {"policy": {"algorithm": "joint_lin_ts"}})


def test_the_pattern_spells_out_what_unicode_says():
    unseen = jsonschema_rs.validator_for({"type": "string", "pattern": f"[{_UNSEEN}]"}).is_valid
    spaces = jsonschema_rs.validator_for({"type": "string", "pattern": f"[{_SPACES}]"}).is_valid
    for one in map(chr, [*range(0xD800), *range(0xE000, 0x10000)]):
        kind = unicodedata.category(one)
        if kind != "Cn":  # what is not assigned may become anything
            assert unseen(one) == (kind in {"Cc", "Cf", "Zl", "Zp"}), hex(ord(one))
        assert spaces(one) == (kind == "Zs"), hex(ord(one))


def test_tens_of_thousands_of_repeated_names_are_told_in_one_pass():
    class Counted(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other):
            type(self).compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    names = tuple(Counted(f"a{n % 500}") for n in range(2_000))
    told = list(repeats("names", names))
    assert [one.path for one in told] == [("names", place) for place in range(500, 2_000)]
    assert {one.what for one in told} == {"named twice"}
    assert Counted.compared < 10 * len(names)
