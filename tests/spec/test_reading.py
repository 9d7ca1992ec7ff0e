"""What every checked YAML file shares: how it is read, and what its mistakes are told as."""

from typing import Literal

import pytest

from steersman.errors import SpecError
from steersman.spec.base import Declared
from steersman.spec.reading import read_declared, shipped


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


def test_what_is_shipped_is_there():
    assert shipped("assistant/route.yaml").is_file()
