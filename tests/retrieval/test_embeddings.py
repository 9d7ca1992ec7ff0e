"""A text is embedded once, whoever asks and whatever happens to the file meanwhile."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import zlib

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from tests.faults.harness import small_disk
from tests.forked import call_in_a_copy
from tests.retrieval.hashed_words import HashedWords
from tests.sqlite_neighbour import keeps_its_journal

TEXTS = ["a flight to Paris", "a table for two", "서울 날씨 ✨", "", "\x00", "half a pair \ud83d"]


class Told:
    """An embedder that gives what it was told to give."""

    name, size = "told", 3

    def __init__(self, rows):
        self.rows = np.array(rows, np.float32)

    def encode(self, texts):
        return self.rows


@pytest.fixture
def file(tmp_path):
    return tmp_path / "cache" / "embeddings.sqlite"


def test_found_and_computed_vectors_have_the_same_bits(file):
    plain = HashedWords()
    with CachedEmbedder(plain, file) as embedder:
        computed = embedder.encode(TEXTS)
        found = embedder.encode(TEXTS[::-1])[::-1]
        assert (embedder.computed, embedder.found, embedder.unstored) == (6, 6, 0)
    assert plain.asked == TEXTS
    assert computed.dtype == np.float32
    assert computed.tobytes() == np.ascontiguousarray(found).tobytes()
    np.testing.assert_array_equal(computed, computed.astype(np.float16))
    np.testing.assert_allclose(computed, HashedWords().encode(TEXTS), atol=5e-4)


def test_another_process_later_finds_what_was_computed(file):
    with CachedEmbedder(HashedWords(), file) as embedder:
        first = embedder.encode(TEXTS)
    other = HashedWords()
    with CachedEmbedder(other, file) as embedder:
        assert embedder.encode(TEXTS).tobytes() == first.tobytes()
    assert other.asked == []


def test_a_second_cache_of_this_process_leaves_the_locks_of_the_first(file):
    first = CachedEmbedder(HashedWords(), file)
    first.encode(TEXTS[:2])
    CachedEmbedder(HashedWords(), file).encode(TEXTS[:2])
    assert keeps_its_journal(file)


def test_a_text_that_is_there_twice_is_embedded_once(file):
    plain = HashedWords()
    with CachedEmbedder(plain, file) as embedder:
        rows = embedder.encode(["a", "b", "a"])
        assert (embedder.computed, embedder.found) == (2, 1)
    assert plain.asked == ["a", "b"]
    np.testing.assert_array_equal(rows[0], rows[2])


def test_many_texts_are_looked_up_in_batches(file):
    texts = [f"text {n}" for n in range(1000)]
    with CachedEmbedder(HashedWords(), file) as embedder:
        embedder.encode(texts[::2])
        rows = embedder.encode(texts)
        assert (embedder.computed, embedder.found) == (1000, 500)
    np.testing.assert_allclose(rows, HashedWords().encode(texts), atol=5e-4)


def test_no_texts_give_no_rows(file):
    with CachedEmbedder(HashedWords(), file) as embedder:
        assert embedder.encode([]).shape == (0, 32)


def test_embedders_share_a_file_and_no_vector(file):
    with (
        CachedEmbedder(HashedWords(), file) as one,
        CachedEmbedder(HashedWords(8, "smaller"), file) as other,
    ):
        assert one.encode(["a"]).shape == (1, 32)
        assert other.encode(["a"]).shape == (1, 8)
        assert (one.computed, other.computed) == (1, 1)


def test_one_text_is_no_list_of_letters(file):
    with CachedEmbedder(HashedWords(), file) as embedder, pytest.raises(InputError, match="list"):
        embedder.encode("text")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[np.nan, 0, 0]], "norm nan"),
        ([[np.inf, 0, 0]], "norm inf"),
        ([[0, 0, 0]], r"norm 0\.0"),
        ([[1, 1, 0]], r"norm 1\.41"),
        ([[1, 0]], r"shape \(1, 2\)"),
        ([[1, 0, 0], [1, 0, 0]], r"shape \(2, 3\)"),
        ([1, 0, 0], r"shape \(3,\)"),
    ],
)
def test_what_no_embedder_may_give_is_refused_and_not_stored(file, rows, said):
    with CachedEmbedder(Told(rows), file) as embedder:
        with pytest.raises(InputError, match=said):
            embedder.encode(["a"])
        assert (embedder.computed, embedder.found) == (0, 0)
    with CachedEmbedder(Told([[1, 0, 0]]), file) as embedder:
        embedder.encode(["a"])
        assert embedder.computed == 1


@pytest.mark.parametrize(
    "change",
    [
        "vector = substr(vector, 3)",
        "vector = CAST(vector || vector AS BLOB)",
        "vector = CAST(x'007e' || substr(vector, 3) AS BLOB)",  # not a number
        "vector = 'text'",
        "crc = crc + 1",
        "vector = 17",
        "text = randomblob(32)",
    ],
)
def test_a_damaged_row_is_never_used(file, change):
    with CachedEmbedder(HashedWords(), file) as embedder:
        first = embedder.encode(["a"])
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE embedding SET {change}")
    connection.close()
    with CachedEmbedder(HashedWords(), file) as embedder:
        if change.startswith("text"):  # another text's row now, which nobody asks for
            assert embedder.encode(["a"]).tobytes() == first.tobytes()
            assert embedder.computed == 1
        else:
            with pytest.raises(DataError, match=r"delete it together with embeddings\.sqlite-wal"):
                embedder.encode(["a"])


def test_a_vector_that_is_not_finite_is_refused_even_with_a_right_checksum(file):
    with CachedEmbedder(HashedWords(), file) as embedder:
        embedder.encode(["a"])
    with sqlite3.connect(file) as connection:
        ((key, vector),) = connection.execute("SELECT text, vector FROM embedding").fetchall()
        wrong = b"\x00\x7e" + vector[2:]
        changed = (wrong, zlib.crc32(key + wrong))
        connection.execute("UPDATE embedding SET vector = ?, crc = ?", changed)
    connection.close()
    with (
        CachedEmbedder(HashedWords(), file) as embedder,
        pytest.raises(DataError, match="or value"),
    ):
        embedder.encode(["a"])


@pytest.mark.parametrize("damage", [b"not SQLite at all, but longer than its header " * 9, None])
def test_a_damaged_file_is_refused_and_left_alone(file, damage):
    with CachedEmbedder(HashedWords(), file) as embedder:
        embedder.encode([f"text {n}" for n in range(500)])
    content = damage or _scrambled(file.read_bytes())
    file.write_bytes(content)
    # Opening may tell, or reading.
    with (
        pytest.raises(DataError, match="damaged, or is not an embedding cache"),
        CachedEmbedder(HashedWords(), file) as embedder,
    ):
        embedder.encode([f"text {n}" for n in range(500)])
    assert file.read_bytes() == content
    file.unlink()
    with CachedEmbedder(HashedWords(), file) as embedder:
        embedder.encode(["a"])
        assert embedder.computed == 1


def _scrambled(content):
    return content[:4096] + bytes(b ^ 0x5A for b in content[4096:])


def test_a_folder_that_may_not_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("folder not found")
    with pytest.raises(DataError, match="cannot be written"):
        CachedEmbedder(HashedWords(), tmp_path / "file" / "embeddings.sqlite")
    with pytest.raises(DataError, match="cannot be written"):
        CachedEmbedder(HashedWords(), tmp_path)


def test_a_full_cache_goes_on_without_storing_and_says_so_once(file, caplog):
    texts = [f"text {n}" for n in range(2000)]
    with (
        caplog.at_level(logging.WARNING),
        CachedEmbedder(HashedWords(64), file, max_bytes=65_536) as embedder,
    ):
        rows = embedder.encode(texts)
        assert embedder.computed == 2000
        assert 1000 < embedder.unstored < 2000
        again = embedder.encode(texts)
        assert again.tobytes() == rows.tobytes()
    assert len(caplog.records) == 1
    assert "cannot store" in caplog.text
    assert file.stat().st_size <= 65_536


def test_a_cache_too_small_for_anything_is_refused(file):
    with pytest.raises(InputError, match="the minimum is 65,536"):
        CachedEmbedder(HashedWords(), file, max_bytes=65_535)


@pytest.mark.slow
def test_a_full_disk_costs_nothing_but_time(tmp_path):
    disk = tmp_path / "disk"
    texts = [f"text {n}" for n in range(600)]
    with small_disk(disk, 2), CachedEmbedder(HashedWords(), disk / "cache.sqlite") as embedder:
        first = embedder.encode(texts[:300])
        (disk / "filler").write_bytes(bytes(4096))
        with (disk / "filler").open("ab", buffering=0) as filler, pytest.raises(OSError):  # noqa: PT012
            while True:
                filler.write(bytes(4096))
        assert embedder.encode(texts)[:300].tobytes() == first.tobytes()
        assert embedder.unstored >= 1
        with CachedEmbedder(HashedWords(), disk / "new.sqlite") as late:
            late.encode(texts[:10])
            assert late.unstored == 10
            (disk / "filler").unlink()
            late.encode(texts[:10])
            late.encode(texts[:10])
            assert (late.computed, late.found, late.unstored) == (20, 10, 10)


def _encode_all(file, seed):
    texts = [f"text {n}" for n in range(400)]
    np.random.default_rng(seed).shuffle(texts)
    with CachedEmbedder(HashedWords(), file) as embedder:
        for place in range(0, 400, 8):
            embedder.encode(texts[place : place + 8])
        return embedder.computed + embedder.found, embedder.unstored


@pytest.mark.slow
def test_several_processes_fill_one_file(file):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        counts = pool.starmap(_encode_all, [(file, seed) for seed in range(3)])
    assert counts == [(400, 0)] * 3
    texts = [f"text {n}" for n in range(400)]
    with CachedEmbedder(HashedWords(), file) as embedder:
        np.testing.assert_allclose(embedder.encode(texts), HashedWords().encode(texts), atol=5e-4)
        assert embedder.computed == 0


def test_a_child_that_was_forked_has_a_connection_of_its_own(file):
    with CachedEmbedder(HashedWords(), file) as embedder:
        embedder.encode(["before"])

        def encodes() -> None:
            assert embedder.encode(["before", "child"]).shape == (2, 32)
            assert embedder.unstored == 0

        child = call_in_a_copy(encodes)
        embedder.encode(["parent"])
        assert child.wait() == 0
        embedder.encode(["before", "child", "parent"])
        assert (embedder.computed, embedder.found) == (2, 3)


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_sound_file(file):
    program = textwrap.dedent("""
        import sys
        from itertools import count
        from pathlib import Path
        from steersman.retrieval.embedding_cache import CachedEmbedder
        from tests.retrieval.hashed_words import HashedWords
        embedder = CachedEmbedder(HashedWords(), Path(sys.argv[1]))
        for number in count():
            embedder.encode([f"text {number}"])
            print(number, flush=True)
    """)
    stored = 0
    for _ in range(4):
        command = [sys.executable, "-c", program, str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline()
            time.sleep(0.15)
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().splitlines()
        stored = max(stored, *(int(n) for n in [line, *rest[:-1]]))
    with CachedEmbedder(HashedWords(), file) as embedder:
        texts = [f"text {n}" for n in range(stored + 1)]
        np.testing.assert_allclose(embedder.encode(texts), HashedWords().encode(texts), atol=5e-4)
        assert embedder.computed == 0
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.slow
def test_minilm_is_cached_under_its_own_name(file):
    pytest.importorskip("onnxruntime")
    try:
        plain = MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))
    texts = ["find a flight", "a restaurant in Paris", "find a flight"]
    with CachedEmbedder(plain, file) as embedder:
        first = embedder.encode(texts)
        assert (embedder.name, embedder.size) == (MiniLM.name, 384)
        assert embedder.encode(texts).tobytes() == first.tobytes()
        assert (embedder.computed, embedder.found) == (2, 4)
    np.testing.assert_allclose(first, plain.encode(texts), atol=5e-4)
    assert np.sum(first * first, axis=1) == pytest.approx(1, abs=2e-3)
