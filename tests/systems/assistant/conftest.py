"""The assistant's world, loaded once; its requests come from the package index."""

import pytest

from steersman.errors import DataError
from steersman_systems.assistant.world import World


@pytest.fixture(scope="session")
def world():
    try:
        return World.load()
    except DataError as missing:
        pytest.skip(str(missing))
