"""``steersman corpus``: add, add again, search, snapshot, drop and index."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("bm25s")

PUMPS = "# Pumps\n\nThe pump hums when its bearing is worn.\n\n## Bearings\n\nGrease them yearly.\n"


@pytest.fixture
def name(command):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    return name


@pytest.fixture
def folder(tmp_path):
    """A folder with documents of some kinds, and a file of none."""
    folder = tmp_path / "manuals"
    (folder / "inner").mkdir(parents=True)
    (folder / "pumps.md").write_text(PUMPS)
    (folder / "inner" / "valves.txt").write_text("A relief valve opens at ten bar.")
    (folder / "lines.jsonl").write_text(
        '{"doc_id": "cables", "text": "Cables carry forty amperes."}\n'
        '{"doc_id": "fuses", "text": "Fuses protect cables."}\n'
    )
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.txt").write_text("hidden")
    return folder


def add(command, name, *paths, status=0, **more):
    options = [f"--{key.replace('_', '-')}={value}" for key, value in more.items()]
    return command.json(
        "corpus", "add", "manuals", *paths, "--tenant", name, *options, status=status
    )


def test_a_folder_is_added_once_and_searched(command, name, folder):
    done = add(command, name, folder, embedder="none")
    assert (done["documents"], done["written"], done["revision"]) == (4, 4, 1)
    assert done["failed"] == {}
    again = add(command, name, folder)
    assert (again["unchanged"], again["written"], again["revision"]) == (4, 0, 1)
    found = command.json("corpus", "search", "manuals", "worn bearing", "--tenant", name)
    assert found["revision"] == 1
    assert found["degraded"] == []
    hit = found["hits"][0]
    assert hit["doc_id"] == "pumps.md"
    where = hit["lineage"]
    shown = command.json("corpus", "show", "manuals", "--document", "pumps.md", "--tenant", name)
    assert shown["text"][where["start"] : where["end"]] == hit["text"]
    assert shown["sha256"] == where["sha256"]
    assert "Grease" in command(
        "corpus", "show", "manuals", "--document", "pumps.md", "--tenant", name
    )
    said = command("corpus", "search", "manuals", "relief valve", "--tenant", name)
    assert "1. inner/valves.txt#0" in said
    assert "ten bar" in said
    assert "no passages found" in command("corpus", "search", "manuals", "zzz", "--tenant", name)


def test_changes_are_taken_over_and_what_is_gone_goes_when_asked(command, name, folder):
    add(command, name, folder, embedder="none")
    (folder / "pumps.md").write_text(PUMPS + "\nNew words.\n")
    (folder / "inner" / "valves.txt").unlink()
    done = add(command, name, folder)
    assert (done["written"], done["unchanged"], done["removed"], done["revision"]) == (1, 2, 0, 2)
    pruned = command.json("corpus", "add", "manuals", folder, "--tenant", name, "--prune")
    assert (pruned["unchanged"], pruned["removed"]) == (3, 1)
    shown = command.json("corpus", "show", "manuals", "--tenant", name)
    assert (shown["revision"], shown["documents"]) == (3, 3)


def test_files_that_cannot_be_read_are_named_and_nothing_is_pruned(command, name, folder):
    add(command, name, folder, embedder="none")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    (folder / "pumps.md").unlink()
    ran = command(*("corpus", "add", "manuals", folder, "--tenant", name, "--prune"), status=1)
    assert "1 of the files could not be read and nothing was pruned" in ran
    assert "broken.pdf" in ran
    assert command.json("corpus", "show", "manuals", "--tenant", name)["documents"] == 4


def test_a_name_that_is_no_unicode_is_read_or_told(command, name, folder):
    try:
        for file, data in ((b"gr\xf6\xdfe.txt", b"Pumps hum."), (b"b\xf6se.txt", b"\x01" * 99)):
            with open(os.fsencode(folder) + b"/" + file, "wb") as made:  # noqa: PTH123 - bytes
                made.write(data)
    except OSError:
        pytest.skip("this file system takes no such name")
    done = add(command, name, folder, embedder="none", status=1)
    assert done["documents"] == 5
    assert [Path(path).name for path in done["failed"]] == ["b\ufffdse.txt"]
    shown = command.json(
        *("corpus", "show", "manuals", "--document", "gr\ufffd\ufffde.txt", "--tenant", name)
    )
    assert shown["text"] == "Pumps hum."


def test_a_snapshot_is_named_listed_and_dropped(command, name, folder):
    add(command, name, folder, embedder="none")
    made = command.json(
        *("corpus", "snapshot", "manuals", "--tenant", name, "--name", "v1", "--ttl-days", 7)
    )
    assert (made["snapshot"], made["revision"], made["documents"]) == ("v1", 1, 4)
    assert len(made["digest"]) == 64
    assert made["expires_at"] > made["created_at"]
    again = ("corpus", "snapshot", "manuals", "--tenant", name, "--name", "v1")
    assert "already" in command(*again, status=1)
    (folder / "pumps.md").write_text("All new.")
    add(command, name, folder)
    query = ("corpus", "search", "manuals", "worn bearing", "--tenant", name)
    assert command.json(*query, "--snapshot", "v1")["hits"][0]["doc_id"] == "pumps.md"
    assert "v1" in command("corpus", "show", "manuals", "--tenant", name)
    assert "no snapshot 'v2'" in command(*query, "--snapshot", "v2", status=1)
    drop = ("corpus", "drop", "manuals", "--tenant", name)
    assert command.json(*drop, "--yes", "--snapshot", "v1")["rows"] == {"corpus_snapshot": 1}
    assert "no snapshot 'v1'" in command(*drop, "--yes", "--snapshot", "v1", status=1)
    assert "Aborted" in command(*drop, input="n\n", status=1)
    assert command.json(*drop, "--yes")["rows"]["corpus_document"] == 5
    assert command.json("corpus", "list", "--tenant", name) == []
    assert "no corpora yet" in command("corpus", "list", "--tenant", name)


def test_documents_are_erased_from_every_snapshot(command, name, folder):
    add(command, name, folder, embedder="none")
    command("corpus", "snapshot", "manuals", "--tenant", name)
    erase = ("tenant", "erase", name, "--reason", "asked for", "--yes", "--corpus", "manuals")
    done = command.json(*erase, "--document", "pumps.md")
    assert done["rows"]["corpus_document"] == 1
    query = ("corpus", "search", "manuals", "worn bearing", "--tenant", name, "--snapshot", "r1")
    assert "pumps.md" not in [hit["doc_id"] for hit in command.json(*query)["hits"]]
    assert "must be given together" in command(*erase, status=2)
    assert "exactly one of" in command(*erase, "--document", "x", "--unit", "u", status=2)


def test_bad_arguments_are_told(command, name, folder):
    for arguments, what in (
        (("--embedder", "glove"), "the embedder is 'glove'"),
        (("--embedder", "http://127.0.0.1:9/v1"), "has no model"),
        (("--embedder", "none", "--chunk-size", "1"), "size is 1"),
        (("--embedder", "none", "--overlap", "-1"), "overlap is -1"),
        (("--embedder", "none", "--near", "2"), "near is 2"),
    ):
        said = command("corpus", "add", "bad", folder, "--tenant", name, *arguments, status=1)
        assert what in said, arguments
        assert "Traceback" not in said
    for bad in ("A", "x" * 64, "a b"):
        assert "the corpus name is" in command(
            *("corpus", "add", bad, folder, "--embedder", "none", "--tenant", name), status=1
        )
    add(command, name, folder, embedder="none")
    said = command(
        "corpus", "add", "manuals", folder, "--tenant", name, "--embedder", "minilm", status=1
    )
    assert "has the embedder 'none'" in said
    for arguments, what in (
        (("--k", "0"), "k is 0"),
        (("--k", "101"), "allowed: 1 to 100"),
        (("--fusion-weight", "1.5"), "fusion_weight is 1.5"),
        (("--rerank", "oracle"), "rerank is 'oracle'"),
        (("--variant", "dense"), "no vectors"),
    ):
        query = ("corpus", "search", "manuals", "pump", "--tenant", name, *arguments)
        assert what in command(*query, status=1), arguments
    assert "white space" in command("corpus", "search", "manuals", " ", "--tenant", name, status=1)
    ttl = ("corpus", "snapshot", "manuals", "--tenant", name, "--ttl-days")
    assert "ttl_days is -1" in command(*ttl, "-1", status=1)
    for arguments in (
        ("add", "manuals"),
        ("add", "manuals", "/no/such/path"),
        ("search", "manuals"),
        ("search", "manuals", "x", "--variant", "magic"),
        ("index", "manuals"),
    ):
        assert "Usage" in command("corpus", *arguments, status=2)
    empty = folder / "empty"
    empty.mkdir()
    assert "no files to read" in command("corpus", "add", "e", empty, "--tenant", name, status=1)


def test_an_index_needs_vectors(command, name, folder):
    add(command, name, folder, embedder="none")
    said = command("corpus", "index", "manuals", "--hnsw", "--tenant", name, status=1)
    assert "has no vectors" in said
    assert command.json("corpus", "index", "manuals", "--exact", "--tenant", name)["vectors"] == 0


def test_anothers_corpus_is_as_absent_as_one_that_nobody_has(command, name, folder):
    add(command, name, folder, embedder="none")
    other = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", other)
    assert command.json("corpus", "list", "--tenant", other) == []
    for arguments in (
        ("show", "NAME"),
        ("search", "NAME", "pump"),
        ("snapshot", "NAME"),
        ("drop", "NAME", "--yes"),
        ("index", "NAME", "--exact"),
        ("show", "NAME", "--document", "pumps.md"),
    ):
        said = [
            command(
                *("corpus", *(asked if part == "NAME" else part for part in arguments)),
                *("--tenant", other),
                status=1,
            ).replace(asked, "NAME")
            for asked in ("manuals", "nothing")
        ]
        assert said[0] == said[1], arguments
    assert command.json("corpus", "show", "manuals", "--tenant", name)["documents"] == 4


def test_a_single_file_is_a_document_of_its_name(command, name, tmp_path):
    file = Path(tmp_path, "note.txt")
    file.write_text("One note.")
    add(command, name, file, embedder="none")
    found = command.json("corpus", "search", "manuals", "note", "--tenant", name)
    assert found["hits"][0]["doc_id"] == "note.txt"
    assert found["hits"][0]["source"] == str(file)
