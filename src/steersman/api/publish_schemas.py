"""Writer of the published OpenAPI document and event schemas.

``python -m steersman.api.publish_schemas ROOT`` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.api.openapi import as_text, document
from steersman.api.schemas import event_schemas

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENAPI_FILE = "docs/reference/openapi.json"
EVENTS_FOLDER = "configs/schemas/events/v1"


def publish(root: Path) -> list[Path]:
    """Write the published files of a checkout and return those that changed."""
    changed = []
    for path, text in published(root):
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            changed.append(path)
    return changed


def published(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each published file of a checkout with its expected content."""
    yield root / OPENAPI_FILE, as_text(document())
    for name, schema in event_schemas().items():
        yield root / EVENTS_FOLDER / name, as_text(schema)


if __name__ == "__main__":
    for file in publish(Path(sys.argv[1])):
        sys.stdout.write(f"wrote {file}\n")
