"""Time to pack, publish, verify, load, merge and measure a snapshot; its size.

``--sets``: bytes, publishing, loading, measures, merging, reload; default: all.

Each figure is the median of its runs with their 5th and 95th percentile. A goal holds only if the
95th percentile reaches it. States are those of a LinTS that has learned, so they compress as in
use. Every run of publishing has another state. Publishing starts with a state in memory and ends
with the signed metadata on disk, every file flushed. Verifying starts with a new consumer that has
only the trusted root and an empty cache, and ends with a policy that can decide.

The peers show the cost without the safety: compression, hash or file alone, and ``numpy.savez``,
which neither signs nor verifies. They take turns with ours.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from benchmarks import registry_reload
from benchmarks.report import Figure, Options, command
from benchmarks.turns import figure, in_turns
from steersman.points.policy_factory import load_policy
from steersman.points.scale_guard import largest_eigenvalue
from steersman.points.state_bytes import pack_state
from steersman.policies import LinTS
from steersman.registry.consumer import Consumer
from steersman.registry.description import describe
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.snapshot import check_state, pack_snapshot, unpack_snapshot
from steersman.registry.storage import DirectoryPlace
from steersman.snapshots.merge import gather, merge_states

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.registry.description import Description

    State = Mapping[str, NDArray[Any]]

LARGE = (256, 50)
MERGED = ((64, 50), LARGE)
DELTAS = 100
ROWS = 4000
TENANT = "benchmark"


def run(options: Options) -> Iterator[Figure]:
    """Measure and yield the figures of the chosen parts."""
    unknown = sorted(set(options.sets) - set(PARTS))
    if unknown:
        message = f"unknown parts {unknown}; known are {', '.join(PARTS)}"
        raise SystemExit(message)
    for name, part in PARTS.items():
        if not options.sets or name in options.sets:
            yield from part(options)


def _bytes(options: Options) -> Iterator[Figure]:
    state = _learned(*LARGE).state()
    plain, packed = pack_state(state), pack_snapshot(state)
    runs = 5 if options.quick else 30
    taken = in_turns(
        runs,
        {
            "pack": lambda: pack_snapshot(state),
            "safetensors alone": lambda: save(dict(state)),
            "zstd level 1 alone": lambda: zstd.compress(plain, 1),
            "zstd level 3 alone": lambda: zstd.compress(plain, 3),
            "sha256 alone": lambda: hashlib.sha256(packed).digest(),
        },
    )
    yield figure("pack, d=256 K=50", taken)
    taken = in_turns(
        runs,
        {
            "unpack": lambda: check_state(unpack_snapshot(packed)),
            "zstd alone": lambda: zstd.decompress(packed),
            "sha256 alone": lambda: hashlib.sha256(packed).digest(),
        },
    )
    yield figure("unpack and check, d=256 K=50", taken)
    full = 8 * LARGE[0] ** 2 * LARGE[1]
    sizes = {"packed triangles": len(plain) / 1e6, "whole matrices": full / 1e6}
    yield Figure("size, d=256 K=50", len(packed) / 1e6, unit="MB", peers=sizes)


def _measures(options: Options) -> Iterator[Figure]:
    state = _learned(*LARGE).state()
    pooled = state["gram"].sum(axis=0) / state["count"].sum()
    dense = np.zeros((LARGE[0], LARGE[0]))
    columns, rows = np.tril_indices(LARGE[0])
    dense[rows, columns] = dense[columns, rows] = pooled
    found = largest_eigenvalue(state)
    exact = float(np.linalg.eigvalsh(dense)[-1])
    taken = in_turns(
        5 if options.quick else 30,
        {
            "measure": lambda: largest_eigenvalue(state),
            "numpy eigvalsh of the pooled matrix": lambda: np.linalg.eigvalsh(dense),
        },
    )
    yield figure("largest eigenvalue, d=256 K=50", taken)
    error = abs((found or 0.0) / exact - 1.0)
    yield Figure("largest eigenvalue: relative error", error, goal="< 0.001", holds=error < 1e-3)


def _merging(options: Options) -> Iterator[Figure]:
    deltas_wanted = DELTAS // 5 if options.quick else DELTAS
    for dim, arms in MERGED:
        base, deltas = _deltas(dim, arms, deltas_wanted)
        calls: dict[str, Callable[[], object]] = {
            "merge": partial(merge_states, base, deltas),
            "policy.merge, delta by delta": partial(_one_by_one, base, deltas),
            "numpy sums, unchecked": partial(_plain, base, deltas),
        }
        taken = in_turns(2 if options.quick else 7, calls)
        yield figure(
            f"merge of {deltas_wanted} deltas, d={dim} K={arms}", taken, unit="s", goal=1.0
        )


def _publishing(options: Options) -> Iterator[Figure]:
    policy, rng = _learned(*LARGE), np.random.default_rng(2)
    versions = count(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        publisher = _publisher(folder)

        def publish() -> None:
            publisher.publish(*_shipped(policy.state(), next(versions)), standing="released")

        calls: dict[str, Callable[[], object]] = {
            "publish": publish,
            "numpy.savez and fsync, unsigned": lambda: _save_flushed(folder, policy.state()),
        }
        taken = in_turns(
            4 if options.quick else 20, calls, between=lambda: _learn(policy, rng, LARGE[1])
        )
    yield figure("publish, d=256 K=50", taken, goal=400.0)


def _loading(options: Options) -> Iterator[Figure]:
    state = _learned(*LARGE).state()
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        publisher = _publisher(folder)
        publisher.publish(*_shipped(state, 1), standing="released")
        root = publisher.keys.trusted_root.read_bytes()
        _save_flushed(folder, state)
        address = stack.enter_context(_served(folder / "registry"))
        caches = (folder / f"cache-{number}" for number in count())
        calls: dict[str, Callable[[], object]] = {
            "directory": lambda: _load(folder / "registry", root, next(caches)),
            "the same over HTTP": lambda: _load(address, root, next(caches)),
            "numpy.load, unverified": lambda: _load_saved(folder),
        }
        taken = in_turns(4 if options.quick else 20, calls)
    over_http = {"over HTTP": taken.pop("the same over HTTP")}
    yield figure("verify and load, d=256 K=50, directory", taken, goal=200.0)
    yield figure("verify and load, d=256 K=50, HTTP of the same machine", over_http, goal=200.0)


PARTS: dict[str, Callable[[Options], Iterator[Figure]]] = {
    "bytes": _bytes,
    "publishing": _publishing,
    "loading": _loading,
    "measures": _measures,
    "merging": _merging,
    "reload": registry_reload.measure,
}


def _publisher(folder: Path) -> Publisher:
    """Return the publisher of a new, empty registry."""
    publisher = Publisher(DirectoryPlace(folder / "registry"), Keys(folder / "keys"))
    publisher.create(TENANT, "only for this benchmark")
    return publisher


def _shipped(state: State, number: int) -> tuple[bytes, Description]:
    """Return a published state: its bytes and metadata."""
    description = describe(
        state,
        tenant=TENANT,
        skill="benchmark",
        point="ship",
        version=f"0.1.{number}",
        created_at=datetime.now(UTC),
    )
    return pack_snapshot(state), description


def _load(source: str | Path, root: bytes, cache: Path) -> ChoicePolicy:
    """Load the policy of the newest version, as a process with only the trusted root."""
    loaded = Consumer(source, root, cache).load("benchmark", "ship")
    return load_policy(loaded.state)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve a folder as static files from a separate process."""
    program = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        [*program, "--directory", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            told = server.stdout.readline() if server.stdout else ""
            yield f"http://127.0.0.1:{told.split(' port ')[1].split()[0]}"
        finally:
            server.terminate()


def _load_saved(folder: Path) -> ChoicePolicy:
    with np.load(folder / "state.npz") as file:
        return load_policy({name: file[name] for name in file.files})


def _save_flushed(folder: Path, state: State) -> None:
    """Write a state with ``numpy.savez``, as durably as a snapshot."""
    arrays: dict[str, Any] = dict(state)
    with (folder / "state.npz").open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


def _learned(dim: int, arms: int, *, rows: int = ROWS, seed: int = 0) -> LinTS:
    """Return a policy that has learned from drawn contexts of norm about 1."""
    policy = LinTS(_names(arms), dim)
    _learn(policy, np.random.default_rng(seed), rows)
    return policy


def _learn(policy: Any, rng: np.random.Generator, rows: int) -> None:
    names = policy.actions
    contexts = rng.normal(size=(rows, policy.dim)) / np.sqrt(policy.dim)
    policy.learn_batch(contexts, [names[i % len(names)] for i in range(rows)], rng.random(rows))


def _names(arms: int) -> list[str]:
    return [f"action_{number}" for number in range(arms)]


def _deltas(dim: int, arms: int, count: int) -> tuple[State, list[State]]:
    """Return a base state and the deltas of its copies, in random order."""
    rng = np.random.default_rng(1)
    base = _learned(dim, arms, rows=1000).state()
    deltas: list[State] = []
    for number in rng.permutation(count):
        copy = load_policy(base)
        _learn(copy, rng, 2 * arms)
        deltas.append(copy.delta(id=f"worker {number:03}"))
    return base, deltas


def _one_by_one(base: State, deltas: list[State]) -> State:
    policy = load_policy(base)
    policy.merge(gather(deltas))
    return policy.state()


def _plain(base: State, deltas: list[State]) -> State:
    total = {name: array.copy() for name, array in base.items() if name != "meta"}
    for delta in deltas:
        for name in total:
            total[name] += delta[name]
    return total


if __name__ == "__main__":
    command("registry", run, doc=__doc__)
