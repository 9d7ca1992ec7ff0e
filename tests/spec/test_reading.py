"""What every checked YAML file shares: how it is read, and what its mistakes are told as."""

from typing import Literal

import pytest

from steersman.errors import SpecError
from steersman.spec.base import Declared
from steersman.spec.document import parse
from steersman.spec.yaml_files import read_declared
from steersman_systems.configs import shipped


class Switch(Declared):
    format: Literal[1]
    share: float


def test_what_is_declared_and_its_lines(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("format: 1\nshare: 0.5\n", encoding="utf-8-sig")
    declared, document = read_declared(file, Switch)
    assert declared == Switch(format=1, share=0.5)
    assert document.line(("share",)) == 2


def test_every_mistake_is_told_at_its_line(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("format: 2\nshare: much\nmore: 1\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_declared(file, Switch)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines if line.startswith(str(file))] == ["1", "2", "3"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b""])
def test_what_is_no_declaration_at_all(tmp_path, content):
    file = tmp_path / "a.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecError, match=r"a\.yaml"):
        read_declared(file, Switch)


def test_what_is_wrong_with_a_file_is_told_as_of_a_decision_point(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes("# é".encode() * (1 << 17))  # a byte more would be half a character
    with pytest.raises(SpecError, match=r"a\.yaml: too large: more than 262,144 bytes"):
        read_declared(file, Switch)
    file.write_bytes(b"format: 1\nshare: \xe9\n")
    with pytest.raises(SpecError, match=r"a\.yaml:2: byte 0xe9 is not UTF-8"):
        read_declared(file, Switch)
    with pytest.raises(SpecError, match="cannot be read: embedded null"):
        read_declared(tmp_path / "a\0b", Switch)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: x\x0b", "a.yaml:2: not valid YAML: character U+000B is not allowed; remove it"),
        ("a: 1\r\nb: \x07\r\n", "a.yaml:2: not valid YAML: character U+0007 is not allowed"),
        ("# c\n%YAML 1.3\n---\na: 1", "a.yaml:2: not valid YAML: version minor part"),
        ('a: 1\nb: "\\ud83d"', "a.yaml:2: half of a surrogate pair"),
        ('a: 1\n"\\ude00\\ud83d": b', "a.yaml:2: half of a surrogate pair"),
    ],
    ids=range(5),
)
def test_characters_and_versions_that_no_text_has_are_told_at_their_line(text, message):
    with pytest.raises(SpecError) as refused:
        parse(text, "a.yaml")
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
def test_what_ends_lines_for_the_parser_alone_stands_in_quotes(sign):
    code = f"{ord(sign):04X}"
    wanted = (
        f"line separator U\\+{code} is not allowed outside quotes; "
        rf'remove it, or write "\\u{code}" in double quotes'
    )
    for line, text in (
        (2, f"x: 'a'\na: {{b: 1, # note{sign} c: 5\n}}"),
        (2, f"x: 'a'\na: b{sign}\nd: 'x'"),
        (3, f"x: 'a'\na: |\n  b{sign}c\n"),
        (2, f"x: 'a'\na: 'b' # {sign}"),
    ):
        with pytest.raises(SpecError, match=f"^a.yaml:{line}: {wanted}$"):
            parse(text, "a.yaml")
    for text in (f'a: "{sign}" b', f'a: "{sign}', f"a: {{b: '{sign}'\nc"):
        with pytest.raises(SpecError, match="not valid YAML"):
            parse(text, "a.yaml")
    assert parse(f'a: "b\\u{code}c"', "a.yaml").root == {"a": f"b{sign}c"}


@pytest.mark.parametrize("sign", ["\u2028", "\u2029"])
def test_in_quotes_they_are_characters(sign):
    """JSON writes them as they are."""
    text = f'{{"a{sign}": "b{sign}c", "d": ["{sign}"]}}'
    assert parse(text, "a.json").root == {f"a{sign}": f"b{sign}c", "d": [sign]}


def test_a_tag_tells_terminals_nothing():
    with pytest.raises(SpecError, match=r"the tag '!foo\\x1b\[31m' is not allowed"):
        parse("a: !foo%1B[31m b", "a.yaml")


def test_characters_are_whole_though_json_writes_them_in_halves():
    halves = '{"\\ud83d\\ude00": ["\\ud83d\\ude80 \\u00e9"]}'
    assert parse(halves, "a.json").root == {"😀": ["🚀 é"]}


def test_what_is_shipped_is_there():
    assert shipped("assistant/route.yaml").is_file()
