"""The service runs as in ``tests/api``."""

from tests.api.conftest import *  # noqa: F403 - fixtures
