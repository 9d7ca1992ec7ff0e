"""The queue on disk by itself."""

import sqlite3
import stat
import subprocess
import sys
import threading

import pytest

from steersman_client.disk_queue import DiskQueue
from steersman_client.errors import QueueError, QueueFullError
from steersman_client.items import Item, Settlement
from steersman_client.lease import Lease
from tests.sqlite_neighbour import keeps_its_journal

ROOM = 1 << 20


def event(number, size=10):
    return Item("event", f"e{number}", b"x" * size)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "er" / "a.queue"


@pytest.fixture
def queue(path):
    made = DiskQueue(path, ROOM)
    yield made
    made.close()


def ids(rows):
    return [row.item.id for row in rows]


def test_records_come_before_events_and_each_in_order(queue):
    queue.put([event(1), Item("record", "r1", b"{}")])
    queue.put([event(2), Item("record", "r2", b"{}")])
    assert ids(queue.take(500, ROOM)) == ["r1", "r2", "e1", "e2"]
    assert ids(queue.take(3, ROOM)) == ["r1", "r2", "e1"]


def test_a_batch_is_bounded_in_bytes_but_never_empty(queue):
    queue.put([event(number, 1000) for number in range(5)])
    assert len(queue.take(500, 2500)) == 2
    assert len(queue.take(500, 10)) == 1


def test_taking_removes_nothing_and_settling_does(queue):
    queue.put([event(number) for number in range(4)])
    first, second, third, fourth = queue.take(500, ROOM)
    queue.settle(Settlement(done=(first,), refused=((second, b"why"),), later=(third,)), 5.0)
    assert ids(queue.take(500, ROOM)) == ["e3", "e2"]
    (refused,) = queue.refused()
    assert (refused.id, refused.kind, refused.problem, refused.at) == ("e1", "event", b"why", 5.0)
    assert queue.backlog().refused == 1
    assert fourth.item.id == "e3"


def test_a_row_settled_twice_is_counted_once(queue):
    queue.put([event(1)])
    (row,) = queue.take(1, ROOM)
    for _ in range(2):
        queue.settle(Settlement(refused=((row, b"why"),)), 0.0)
    assert queue.backlog().refused == 1
    assert len(queue.refused()) == 1


def test_a_number_is_never_given_twice(queue):
    queue.put([event(1)])
    old = queue.take(1, ROOM)
    queue.settle(Settlement(done=tuple(old)), 0.0)
    queue.put([event(2)])
    queue.settle(Settlement(done=tuple(old)), 0.0)
    assert ids(queue.take(1, ROOM)) == ["e2"]


def test_the_refused_are_bounded_and_all_counted(queue):
    queue.put([event(number) for number in range(1010)])
    rows = queue.take(2000, ROOM)
    queue.settle(Settlement(refused=tuple((row, b"") for row in rows)), 0.0)
    assert queue.backlog().refused == 1010
    assert ids_of_refused(queue) == [f"e{number}" for number in range(10, 1010)]


def ids_of_refused(queue):
    return [one.id for one in queue.refused()]


@pytest.mark.parametrize("drop", ["never", "oldest"])
def test_what_was_refused_leaves_its_room_to_what_is_to_be_delivered(path, drop):
    queue = DiskQueue(path, 256 << 10, drop)
    for number in range(12):
        queue.put([event(number, 60_000)])
        rows = queue.take(10, ROOM)
        queue.settle(Settlement(refused=tuple((row, b"") for row in rows)), 0.0)
    assert ids_of_refused(queue)[-1] == "e11"
    told = queue.backlog()
    assert (told.refused, told.dropped, told.events) == (12, 0, 0)
    with pytest.raises(QueueFullError):
        queue.put([event(99, 1 << 20)])
    assert ids_of_refused(queue), "what does not fit takes no room"
    queue.close()


def test_a_full_queue_takes_nothing_and_keeps_everything(queue):
    def fill():
        while True:
            queue.put([event(1, 10_000)])

    with pytest.raises(QueueFullError, match="drop='oldest'"):
        fill()
    held = len(queue.take(10_000, 1 << 30))
    assert 50 < held < 105
    rows = queue.take(10, ROOM)
    queue.settle(Settlement(done=tuple(rows)), 0.0)
    queue.put([event(1, 10_000)])


def test_items_that_belong_together_are_kept_together_or_not_at_all(queue):
    with pytest.raises(QueueFullError):
        queue.put([event(1), event(2, 2 * ROOM)])
    assert queue.is_empty()


def test_the_oldest_events_go_first_where_that_was_chosen(path):
    queue = DiskQueue(path, ROOM, "oldest")
    queue.put([Item("record", "r", b"{}")])
    dropped = sum(queue.put([event(number, 10_000)]) for number in range(300))
    rows = ids(queue.take(1000, 1 << 30))
    assert rows[0] == "r"
    assert rows[-1] == "e299"
    assert len(rows) == 301 - dropped
    assert queue.backlog().dropped == dropped > 100
    with pytest.raises(QueueFullError):
        queue.put([event(1, 2 * ROOM)])
    assert ids(queue.take(1000, 1 << 30)) == rows
    queue.close()


def test_what_one_connection_put_another_one_takes(path, queue):
    other = DiskQueue(path, ROOM)
    queue.put([event(1)])
    assert ids(other.take(1, ROOM)) == ["e1"]
    other.close()


def test_many_threads_and_connections_lose_nothing(path, queue):
    other = DiskQueue(path, ROOM)

    def fill(target, start):
        for number in range(start, start + 50):
            target.put([event(number)])

    threads = [
        threading.Thread(target=fill, args=(target, 1000 * index))
        for index, target in enumerate([queue, queue, other, other])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids(queue.take(500, ROOM)))) == 200
    other.close()


def test_a_second_queue_of_this_process_leaves_the_locks_of_the_first(path, queue):
    queue.put([event(1)])
    other = DiskQueue(path, 2 * ROOM, drop="oldest")
    assert keeps_its_journal(path)
    other.put([event(2)])
    other.close()
    assert keeps_its_journal(path)
    queue.put([event(3)])
    assert ids(DiskQueue(path, ROOM).take(500, ROOM)) == ["e1", "e2", "e3"]


def test_a_second_lease_of_this_process_leaves_the_lock_of_the_first(tmp_path):
    path = tmp_path / "a.sender"
    first, second = Lease(path), Lease(path)
    assert first.take()
    assert not second.take()
    tried = "import pathlib, sys; from steersman_client.lease import Lease; "
    tried += "sys.exit(Lease(pathlib.Path(sys.argv[1])).take())"
    assert subprocess.run([sys.executable, "-c", tried, str(path)], check=False).returncode == 0
    first.release()
    assert second.take()
    second.release()


def test_only_this_user_can_read_it(path, queue):
    queue.put([event(1)])
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_closed_queue_says_so(queue):
    queue.close()
    with pytest.raises(QueueError, match="closed"):
        queue.put([event(1)])


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(QueueError, match=r"file/a\.queue.*queue_dir"):
        DiskQueue(tmp_path / "file" / "a.queue", ROOM).is_empty()


def test_a_file_that_is_no_queue_is_left_alone_and_named(tmp_path):
    (tmp_path / "a.queue").write_bytes(b"something else" * 100)
    with pytest.raises(QueueError, match=r"not a database"):
        DiskQueue(tmp_path / "a.queue", ROOM).is_empty()
    assert (tmp_path / "a.queue").read_bytes() == b"something else" * 100


def test_a_queue_locked_for_long_by_another_says_so(path, queue, monkeypatch):
    monkeypatch.setattr("steersman_client.queue_file.BUSY_S", 0.05)
    queue.put([event(1)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    late = DiskQueue(path, ROOM)
    with pytest.raises(QueueError, match="locked"):
        late.put([event(2)])
    other.close()
    late.put([event(3)])
    assert ids(late.take(9, ROOM)) == ["e1", "e3"]
    late.close()


def test_a_lease_is_held_by_one_and_comes_back(tmp_path):
    first, second = Lease(tmp_path / "a.sender"), Lease(tmp_path / "a.sender")
    assert first.take()
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    second.release()


def test_a_full_disk_is_told_and_nothing_is_half_written(queue):
    queue.put([event(1)])
    # SQLite raises the same error where the file may not grow and where the disk cannot hold it.
    queue._connect().execute("PRAGMA max_page_count = 12")
    with pytest.raises(QueueFullError, match="free some space"):
        queue.put([event(2), event(3, 100_000)])
    assert ids(queue.take(9, ROOM)) == ["e1"]
    queue.put([event(4)])
    assert ids(queue.take(9, ROOM)) == ["e1", "e4"]
