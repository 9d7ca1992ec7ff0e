"""Commands run as in ``tests/cli``."""

from tests.cli.conftest import command, database, home, service  # noqa: F401 - fixtures
