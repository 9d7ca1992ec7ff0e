"""Bombs: whatever a snapshot would grow to, reading it takes no more memory than allowed.

Each attack runs in a process of its own whose address space is limited to what it had before, plus
what may be taken; taking more raises MemoryError there, which is no refusal.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from steersman.points.state_bytes import zstd

MIB = 1024 * 1024
CAP = 8 * MIB

# Two times the cap for bytes and arrays, once for a buffer on its way, and the interpreter's own.
ALLOWED = 3 * CAP + 8 * MIB
PROGRAM = """
import resource, sys
from steersman.errors import VerificationError
from steersman.registry.snapshot import unpack_snapshot, check_state

data = open(sys.argv[1], "rb").read()
with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
limit = taken + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    state = unpack_snapshot(data, max_bytes=int(sys.argv[2]))
except VerificationError as error:
    print("refused:", error)
else:
    print("read", sum(array.nbytes for array in state.values()))
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits of address space are read from /proc"
)


def _run(tmp_path, data, *, cap=CAP, allowed=ALLOWED):
    file = tmp_path / "snapshot"
    file.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), str(cap), str(allowed)],
        check=False,
        capture_output=True,
        text=True,
        env={"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _frame(chunks, *, declared=None, **options):
    """Return one frame over zeros, without holding what it grows to."""
    settings = {zstd.CompressionParameter.compression_level: 1}
    settings |= {getattr(zstd.CompressionParameter, name): v for name, v in options.items()}
    writer = zstd.ZstdCompressor(options=settings)
    if declared is not None:
        writer.set_pledged_input_size(declared)
    parts = [writer.compress(chunk) for chunk in chunks]
    return b"".join([*parts, writer.flush()])


def _zeros(mib):
    return (bytes(MIB) for _ in range(mib))


@pytest.mark.slow
def test_a_bomb_that_declares_its_size_is_not_opened(tmp_path):
    data = _frame(_zeros(256), declared=256 * MIB)
    assert len(data) < MIB // 8
    assert "refused: the snapshot has" in _run(tmp_path, data)


@pytest.mark.slow
def test_a_bomb_that_declares_nothing_is_not_opened(tmp_path):
    assert "declares 0" in _run(tmp_path, _frame(_zeros(256)))


@pytest.mark.slow
@pytest.mark.parametrize("declared", [100, MIB, CAP])
def test_a_bomb_that_lies_is_stopped_at_what_it_declared(tmp_path, declared):
    data = bytearray(_frame(_zeros(256), declared=256 * MIB))
    assert data[4] >> 6 == 2  # four bytes of size, after magic, descriptor and window
    data[6:10] = declared.to_bytes(4, "little")
    assert "refused" in _run(tmp_path, bytes(data))


@pytest.mark.slow
def test_a_frame_that_wants_to_look_far_back_is_refused(tmp_path):
    data = _frame(_zeros(6), declared=6 * MIB, window_log=27)
    far = bytearray(data)
    if not data[4] & 0x20:  # a window descriptor, not a single segment
        far[5] = 21 << 3  # 2^31
        assert "refused" in _run(tmp_path, bytes(far))
    assert "refused" in _run(tmp_path, data)


@pytest.mark.slow
def test_a_frame_of_nothing_but_names_is_refused(tmp_path):
    names = ",".join(
        f'"{number}":{{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}' for number in range(80_000)
    )
    header = b"{" + names.encode() + b"}"
    plain = len(header).to_bytes(8, "little") + header
    assert len(plain) < CAP
    assert "the array names of the snapshot take" in _run(tmp_path, zstd.compress(plain, 1))


@pytest.mark.slow
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_000, 60_000])
def test_a_header_length_that_lies_is_refused(tmp_path, length):
    plain = length.to_bytes(8, "little") + b"{" * 50_000
    assert "refused" in _run(tmp_path, zstd.compress(plain, 1))


@pytest.mark.slow
def test_a_deep_header_is_refused(tmp_path):
    header = b'{"a":' * 12_000
    plain = len(header).to_bytes(8, "little") + header
    assert "refused" in _run(tmp_path, zstd.compress(plain, 1))


@pytest.mark.slow
def test_the_largest_that_is_allowed_is_read(tmp_path):
    program = (
        "import sys, numpy as np\n"
        "from steersman.policies import LinUCB\n"
        "from steersman.registry.snapshot import pack_snapshot\n"
        "state = LinUCB([f'a{i}' for i in range(30)], dim=255).state()\n"
        "open(sys.argv[1], 'wb').write(pack_snapshot(state))\n"
    )
    file = tmp_path / "large"
    subprocess.run([sys.executable, "-c", program, str(file)], check=True)
    data = file.read_bytes()
    assert len(data) < MIB // 8  # nothing learned: zeros
    size = zstd.get_frame_info(data).decompressed_size
    assert 7 * MIB < size < CAP
    assert "read 7" in _run(tmp_path, data)
    assert "refused" in _run(tmp_path, data, cap=size - 1)
