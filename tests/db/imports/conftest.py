"""Fixtures of the import tests: a decision point and log files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from steersman.db.declarations import declare
from steersman.db.imports.load import import_log
from steersman.platform.postgres.database import as_tenant

EXAMPLES = Path(__file__).parents[3] / "examples" / "import"
CONFIGS = Path(__file__).parents[3] / "configs"
NOW = datetime(2026, 6, 1, tzinfo=UTC)

MAPPING = """
format: 1
source: log
skill: search
decision: depth
id: id
time: {field: at, format: unix_s}
context: {words: words, language: lang}
action: chosen
propensity: {field: p}
outcomes: {clicked: clicked, seconds: seconds}
"""


class Logs:
    """Writes logs and mappings into a folder and imports them."""

    def __init__(self, database, tenant, folder):
        self.database, self.tenant, self.folder = database, tenant, folder

    async def declare(self, document=None):
        if document is None:
            document = (EXAMPLES / "search_depth.yaml").read_text()
        return await declare(self.database, self.tenant, document, actor="test")

    def mapping(self, text=MAPPING, **changes):
        """Return a mapping file; a change replaces or adds a line, None removes it."""
        lines = {line.split(":")[0]: line for line in text.strip().splitlines()}
        for name, value in changes.items():
            if value is None:
                lines.pop(name, None)
            else:
                lines[name] = f"{name}: {value}"
        path = self.folder / "mapping.yaml"
        path.write_text("\n".join(lines.values()))
        return path

    def lines(self, *rows, name="log.jsonl"):
        path = self.folder / name
        texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(f"{text}\n" for text in texts))
        return path

    def row(self, number=0, **changes):
        row = {
            "id": f"r{number}",
            "at": 1_770_000_000 + number,
            "words": 4,
            "lang": "en",
            "chosen": "deep",
            "p": 0.25,
            "clicked": True,
            "seconds": 1.5,
        }
        return {name: v for name, v in {**row, **changes}.items() if v != "(absent)"}

    async def load(self, file, mapping=None, **options):
        return await import_log(
            self.database, self.tenant, file, mapping or self.mapping(), now=NOW, **options
        )

    async def rows(self, sql):
        connection = await self.database.connect("app")
        try:
            async with as_tenant(connection, self.tenant):
                return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()


@pytest.fixture
def logs(database, tenant, tmp_path):
    return Logs(database, tenant.id, tmp_path)


@pytest.fixture
def examples():
    return EXAMPLES


@pytest.fixture
def configs():
    return CONFIGS
