"""One parser's process for all tests of a file: starting one takes longer than most of them."""

import pytest

from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.read import read


@pytest.fixture(scope="module")
def parser():
    with BoundedParser() as shared:
        yield shared


@pytest.fixture
def read_one(parser):
    def call(source, **arguments):
        [document] = read(source, parser=parser, **arguments)
        return document

    return call
