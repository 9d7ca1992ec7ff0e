"""Manifest of a registry: one line of JSON per published version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.errors import VerificationError
from steersman.registry.chain import MAX_ROOT, file_of, follow_root, read_chain, read_root, releases
from steersman.registry.consumer import Consumer
from steersman.registry.description import MAX_DESCRIPTION, Description

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.registry.chain import Chain
    from steersman.registry.storage import Place


def manifest(source: Consumer | Place) -> str:
    """Return a list of the published versions, for people and scripts.

    The manifest is created on request and not signed. Nothing is loaded from it.

    Raises:
        SnapshotError: no verified metadata, or a description is missing or damaged.
        RegistryError: reading the registry failed.

    >>> import tempfile
    >>> from steersman.registry.storage import DirectoryPlace
    >>> from steersman.registry.keys import Keys
    >>> from steersman.registry.repository import Publisher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = DirectoryPlace(f"{folder}/acme")
    ...     root = Publisher(place, Keys(f"{folder}/keys")).create("acme", "a long passphrase")
    ...     manifest(place)
    ''
    """
    found = _of_consumer(source) if isinstance(source, Consumer) else _of_place(source)
    return "".join(
        msgspec.json.encode(description.to_json(), order="sorted").decode() + "\n"
        for description in found
    )


def _of_consumer(consumer: Consumer) -> Iterator[Description]:
    for skill, point in consumer.points():
        for version in consumer.versions(skill, point):
            yield consumer.describe(skill, point, version)


def _of_place(place: Place) -> Iterator[Description]:
    chain = _chain(place)
    found = sorted(releases(chain.targets), key=lambda it: it.version, reverse=True)
    for release in sorted(found, key=lambda it: (it.skill, it.point)):
        held = place.read(file_of(release.description), max_bytes=MAX_DESCRIPTION)
        if held is None:
            message = f"{file_of(release.description)} not found; publish or retract the version"
            raise VerificationError(message)
        yield Description.from_json(held.data)


def _chain(place: Place) -> Chain:
    def fetch(name: str, most: int) -> bytes | None:
        held = place.read(f"metadata/{name}", max_bytes=most)
        return held.data if held else None

    first = fetch("1.root.json", MAX_ROOT)
    if first is None:
        message = "registry not found: root metadata is missing; create it, or pass another place"
        raise VerificationError(message)
    return read_chain(read_root(follow_root(first, fetch)[-1]), fetch)
