"""Adds documents to a corpus until done or killed: ``adding_process URL TENANT TOLD COUNT``."""

from __future__ import annotations

import asyncio
import sys
from uuid import UUID

from steersman.platform.postgres.database import Database
from steersman.retrieval.corpora import Corpora
from steersman.retrieval.documents.document import Document
from steersman.retrieval.embedders import Embedders
from tests.retrieval.slow_words import SlowWords


def documents(count):
    return [Document(f"d{number:05d}", f"Text number {number:05d}.") for number in range(count)]


async def add(url, tenant, told, count, seconds):
    own = Embedders(own={"slow": SlowWords(seconds, told=told)})
    corpora = Corpora(Database(url), UUID(tenant), embedders=own)
    return await corpora.add("manuals", documents(count), embedder="slow")


if __name__ == "__main__":
    url, tenant, told, count = sys.argv[1:]
    asyncio.run(add(url, tenant, told, int(count), 0.05))
