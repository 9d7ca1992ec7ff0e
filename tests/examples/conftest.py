"""What pages share: a home whose path is short enough for the socket of a server."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
