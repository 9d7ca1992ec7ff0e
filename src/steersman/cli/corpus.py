"""Document corpora: ``steersman corpus``."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import show, show_rows
from steersman.errors import DataError, InputError
from steersman.retrieval.corpora import Corpora
from steersman.retrieval.documents.chunks import Chunking
from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.read import files, printable, read
from steersman.retrieval.embedders import Embedders
from steersman.retrieval.embedding_pool import EmbeddingWorkers, usual_workers
from steersman.retrieval.results import SearchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeVar

    from steersman.db.corpora import CorpusRow
    from steersman.db.corpus_snapshots import CorpusSnapshotRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.retrieval.add_documents import AddResult
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman.retrieval.results import Hit

    T = TypeVar("T")
    from collections.abc import Iterator, Sequence

    from steersman.retrieval.documents.document import Document

_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


class Reading:
    """The documents of files and folders, in order.

    Args:
        paths: files, and folders that are searched for files of known kinds.

    Attributes:
        files: number of files.
        read: number of files read so far.
        failed: error messages by path.
        doc_ids: ids of all documents read.

    Raises:
        DataError: a folder has no readable file, or cannot be read itself.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.read = 0
        self.failed: dict[str, str] = {}
        self.doc_ids: set[str] = set()
        self._files = [one for path in paths for one in _below(path)]

    @property
    def files(self) -> int:
        """Number of files to read."""
        return len(self._files)

    def documents(self) -> Iterator[Document]:
        """Yield the documents; skip an unreadable file and record it in `failed`."""
        with BoundedParser() as parser:
            for path, doc_id in self._files:
                try:
                    found = read(path, doc_id=doc_id, parser=parser)
                except (DataError, InputError, OSError) as error:
                    self.failed[printable(str(path))] = str(error)
                    continue
                finally:
                    self.read += 1
                self.doc_ids.update(one.doc_id for one in found)
                yield from found


def _below(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield files with the id of their only document; None: a file of JSON lines."""
    for one in files(path) if path.is_dir() else [path]:
        inner = one.relative_to(path).as_posix() if path.is_dir() else one.name
        yield one, None if one.name.lower().endswith(_LINES) else printable(inner)


@contextmanager
def watched(reading: Reading, *, as_json: bool) -> Iterator[Callable[[AddResult], None]]:
    """Give a callback that shows the progress of `Reading` at a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    more = TextColumn("{task.fields[more]}")
    with Progress(*columns, more, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("reading and embedding", total=reading.files, more="")

        def tell(done: AddResult) -> None:
            texts = f"{done.embedded:,} texts embedded, {done.known:,} known"
            bar.update(task, completed=reading.read, more=texts)

        yield tell


@contextmanager
def indexing(*, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Give a callback that shows how many vectors an index has, at a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("indexing") as status:
        yield lambda count: status.update(
            f"indexing: {count:,} vectors loaded; the graph comes next"
        )


_name = click.argument("name")
_SNIPPET = 200


@click.group()
def command() -> None:
    """Add documents to a corpus, search it, and take snapshots of it."""


def _in_corpora(
    home: Path, tenant_name: str, work: Callable[[Corpora], Coroutine[Any, Any, T]]
) -> T:
    async def begin(database: Database, tenant: Tenant) -> T:
        corpora = Corpora(database, tenant.id, embedders=Embedders(home), actor=actor())
        return await work(corpora)

    return for_tenant(home, tenant_name, begin)


@command.command("add")
@_name
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH...",
)
@tenant_option
@click.option(
    "--embedder",
    help="Embedder of a new corpus: minilm, none (keyword search only), or "
    "http(s)://HOST/v1#MODEL of an OpenAI-compatible server.  [default: minilm]",
)
@click.option("--chunk-size", type=int, help="Maximum characters per passage of a new corpus.")
@click.option(
    "--overlap", type=int, help="Characters that neighbouring passages of a new corpus share."
)
@click.option(
    "--near",
    type=float,
    help="Similarity (.3 to 1) from which a new corpus treats passages as duplicates: a search "
    "returns one of them.",
)
@click.option("--prune", is_flag=True, help="Remove documents that are not among PATHs.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Embedding processes.  [default: half of the cores minus 1, at least 1]",
)
@administers
def add(
    name: str,
    paths: tuple[Path, ...],
    tenant_name: str,
    embedder: str | None,
    chunk_size: int | None,
    overlap: int | None,
    near: float | None,
    workers: int | None,
    home: Path,
    *,
    prune: bool,
    as_json: bool,
) -> None:
    """Add files and folders to the corpus NAME; create the corpus if it does not exist.

    Reads text, Markdown, HTML, PDF and JSON lines; in folders, other files are skipped. Unchanged
    documents are not embedded again, so a repeated command continues where it stopped. The id of a
    document is its path below the folder, or its file name.
    """
    chunking = _chunking(chunk_size, overlap)
    reading = Reading(paths)

    async def work(corpora: Corpora) -> AddResult:
        there = {row.name: row for row in await corpora.all()}
        with watched(reading, as_json=as_json) as progress:
            using = _workers(there.get(name), embedder, workers or usual_workers(), home)
            try:
                return await corpora.add(
                    name,
                    reading.documents(),
                    embedder=embedder,
                    chunking=chunking,
                    near=near,
                    using=using,
                    on_progress=progress,
                )
            finally:
                if using is not None:
                    using.close()

    done = _in_corpora(home, tenant_name, work)
    removed = 0
    if prune and not reading.failed:
        removed = _in_corpora(home, tenant_name, lambda it: it.keep_only(name, reading.doc_ids))
    shown = {field: getattr(done, field) for field in _ADDED}
    shown |= {"removed": removed, "failed": reading.failed}
    show(shown, as_json=as_json)
    if reading.failed:
        left = " and nothing was pruned" if prune else ""
        raise DataError(
            f"{len(reading.failed)} of the files could not be read{left}; all others were added"
        )


_ADDED = (
    "corpus",
    "revision",
    "documents",
    "written",
    "unchanged",
    "passages",
    "embedded",
    "known",
)


def _chunking(size: int | None, overlap: int | None) -> Chunking | None:
    if size is None and overlap is None:
        return None
    usual = Chunking()
    size = usual.size if size is None else size
    return Chunking(size, min(usual.overlap, size // 2) if overlap is None else overlap)


def _workers(
    corpus: CorpusRow | None, embedder: str | None, workers: int, home: Path
) -> EmbeddingWorkers | None:
    """Return embedding processes; None: this process embeds."""
    spec = embedder or "minilm" if corpus is None else corpus.embedder
    if spec != "minilm" or workers == 1:
        return None
    return EmbeddingWorkers(home=home, workers=workers)


@command.command("list")
@tenant_option
@administers
def list_command(tenant_name: str, home: Path, *, as_json: bool) -> None:
    """List the corpora of a tenant."""
    found = _in_corpora(home, tenant_name, lambda it: it.all())
    none = "no corpora yet; `steersman corpus add NAME PATH...` creates one"
    columns = ("name", "revision", "embedder", "changed_at", "created_at")
    show_rows(map(_corpus, found), columns, as_json=as_json, none=none)


@command.command("show")
@_name
@tenant_option
@click.option("--document", help="Print only the stored text of this document.")
@click.option("--snapshot", help="With --document: read the text from this corpus snapshot.")
@administers
def show_command(
    name: str,
    tenant_name: str,
    document: str | None,
    snapshot: str | None,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Show the size, chunking, embedder and snapshots of the corpus NAME."""
    if document is not None:
        found = _in_corpora(
            home, tenant_name, lambda it: it.document(name, document, snapshot=snapshot)
        )
        if not as_json:
            click.echo(found.text, nl=not found.text.endswith("\n"))
            return
        shown = {field: getattr(found, field) for field in _DOCUMENT}
        show(shown, as_json=True)
        return
    it = _in_corpora(home, tenant_name, lambda corpora: corpora.show(name))
    described = {**_corpus(it.corpus), "documents": it.size.documents}
    described |= {"passages": it.size.passages, "characters": it.size.characters}
    described |= {"search": "pgvector" if it.indexed else "exact"}
    snapshots = [_snapshot(one) for one in it.snapshots]
    if as_json:
        show({**described, "snapshots": snapshots}, as_json=True)
        return
    show({**described, "snapshots": len(snapshots)}, as_json=False)
    if snapshots:
        click.echo()
        columns = ("snapshot", "revision", "passages", "created_at", "expires_at")
        show_rows(snapshots, columns, as_json=False, none="")


_DOCUMENT = ("doc_id", "title", "source", "meta", "sha256", "text")


@command.command("search")
@_name
@click.argument("query")
@tenant_option
@click.option("--snapshot", help="Corpus snapshot to search.  [default: the newest revision]")
@click.option(
    "--variant",
    type=click.Choice(["bm25", "dense", "hybrid"]),
    help="Ranking by words, by meaning, or both.  [default: hybrid if the corpus has vectors]",
)
@click.option("--k", default=10, show_default=True, type=int, help="Number of passages, 1 to 100.")
@click.option(
    "--fusion",
    type=click.Choice(["convex", "rrf"]),
    default="convex",
    show_default=True,
    help="Method that merges both rankings.",
)
@click.option(
    "--fusion-weight", default=0.5, show_default=True, type=float, help="Weight of dense, 0 to 1."
)
@click.option("--rerank", default="off", show_default=True, help="Reranker: off or cosine.")
@click.option("--expand", is_flag=True, help="Add passages that the best ones link to.")
@administers
def search(
    name: str,
    query: str,
    tenant_name: str,
    snapshot: str | None,
    variant: Any,
    k: int,
    fusion: Any,
    fusion_weight: float,
    rerank: str,
    home: Path,
    *,
    expand: bool,
    as_json: bool,
) -> None:
    """Search the corpus NAME for QUERY; print the passages and their positions."""
    settings = SearchSettings(variant or "hybrid", k, fusion, fusion_weight, rerank, expand)
    opened = _in_corpora(
        home,
        tenant_name,
        lambda it: it.open(name, snapshot=snapshot, by_words=variant == "bm25"),
    )
    if variant is None and opened.loaded.vectors is None:
        settings = SearchSettings("bm25", k, fusion, fusion_weight, rerank, expand)
    found = opened.searcher.search(query, settings)
    hits = [_hit(place, hit, opened) for place, hit in enumerate(found.hits, 1)]
    if as_json:
        revision = opened.loaded.place.revision
        degraded = list(found.degraded)
        show({"revision": revision, "degraded": degraded, "hits": hits}, as_json=True)
        return
    _print_hits(hits)
    for part in found.degraded:
        click.echo(f"{part} did not answer; searched without it", err=True)


def _hit(place: int, hit: Hit, opened: OpenCorpus) -> dict[str, Any]:
    passage, where = hit.passage, hit.passage.lineage
    return {
        "rank": place,
        "id": passage.id,
        "doc_id": passage.doc_id,
        "chunk": passage.chunk,
        "score": hit.score,
        "ranks": dict(hit.ranks),
        "title": passage.title,
        "source": passage.source,
        "text": passage.text,
        "meta": dict(passage.meta),
        "lineage": {
            "sha256": where.sha256,
            "start": where.start,
            "end": where.end,
            "headings": list(where.headings),
            "page": where.page,
            "chunker": where.chunker,
        },
        "expanded_from": hit.expanded_from,
        "also": list(opened.loaded.also.get(passage.id, ())),
    }


def _print_hits(hits: list[dict[str, Any]]) -> None:
    if not hits:
        click.echo("no passages found")
    for hit in hits:
        where = hit["lineage"]
        page = f" page {where['page']}" if where["page"] else ""
        click.echo(f"{hit['rank']:>3}. {hit['id']}  {hit['score']:.4g}{page}")
        above = " > ".join(part for part in (hit["title"], *where["headings"]) if part)
        if above:
            click.echo(f"     {above}")
        text = " ".join(hit["text"].split())
        click.echo(f"     {text[:_SNIPPET]}{' …' if len(text) > _SNIPPET else ''}")


@command.command("snapshot")
@_name
@tenant_option
@click.option("--name", "label", help="Snapshot name.  [default: r and the revision]")
@click.option("--ttl-days", type=float, help="Days until the snapshot expires.  [default: never]")
@administers
def snapshot_command(
    name: str,
    tenant_name: str,
    label: str | None,
    ttl_days: float | None,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Take a snapshot of the corpus NAME at its newest revision; it never changes."""
    made = _in_corpora(home, tenant_name, lambda it: it.snapshot(name, label, ttl_days=ttl_days))
    show({"corpus": name, **_snapshot(made)}, as_json=as_json)


@command.command("drop")
@_name
@tenant_option
@click.option("--snapshot", help="Drop only this corpus snapshot.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@administers
def drop(
    name: str, tenant_name: str, snapshot: str | None, home: Path, *, yes: bool, as_json: bool
) -> None:
    """Drop the corpus NAME with its documents, vectors and snapshots permanently."""
    if not yes:
        what = f"corpus {name}" if snapshot is None else f"snapshot {snapshot} of corpus {name}"
        click.confirm(f"Drop the {what} of {tenant_name} permanently?", abort=True, err=True)
    rows = _in_corpora(home, tenant_name, lambda it: it.drop(name, snapshot=snapshot))
    show({"corpus": name, "snapshot": snapshot, "rows": rows}, as_json=as_json)


@command.command("index")
@_name
@tenant_option
@click.option(
    "--hnsw/--exact",
    default=None,
    help="Build pgvector's index again, for corpora of more than about 100,000 passages; or "
    "remove it and compare all vectors.",
)
@administers
def index(name: str, tenant_name: str, home: Path, *, hnsw: bool | None, as_json: bool) -> None:
    """Choose the vector search of the corpus NAME: indexed or exact."""
    if hnsw is None:
        raise click.UsageError("give --hnsw or --exact")
    with indexing(as_json=as_json) as progress:
        count = _in_corpora(
            home, tenant_name, lambda it: it.index(name, hnsw=hnsw, on_progress=progress)
        )
    search_by = "pgvector" if hnsw else "exact"
    show({"corpus": name, "search": search_by, "vectors": count}, as_json=as_json)


def _corpus(row: CorpusRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "revision": row.revision,
        "embedder": row.embedder or "none",
        "embedder_name": row.embedder_name,
        "dimension": row.dimension,
        "chunking": row.chunking,
        "near": row.near,
        "created_at": row.created_at,
        "changed_at": row.changed_at,
    }


def _snapshot(row: CorpusSnapshotRow) -> dict[str, Any]:
    return {
        "snapshot": row.name,
        "revision": row.revision,
        "documents": row.documents,
        "passages": row.passages,
        "digest": row.digest,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }
