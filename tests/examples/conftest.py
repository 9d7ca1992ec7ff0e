"""What pages share: a home with a server, whose path is short enough for a socket."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.clusters import copy_cluster


@pytest.fixture
def home(cluster):
    folder = Path(tempfile.mkdtemp(prefix="st-"))
    copy_cluster(cluster, folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
