"""Checks of ``steersman doctor``: Python, systems, the home, the disk, Redis, the service."""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import statistics
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import urllib3

from steersman.db.answer_cache_redis import RedisCache
from steersman.errors import InputError, SteersmanError, StoreError
from steersman.errors.install_hint import how_to_install
from steersman.points.systems import installed_systems
from steersman.policies.gaussian_compiled import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Verdict = Literal["ok", "warn", "fail"]
_EXTRAS = {
    "data": (("duckdb", "pyarrow"), "no compaction, no `data query`"),
    "s3": (("obstore",), "no cold store in S3"),
    "redis": (("redis",), "PostgreSQL stores cached answers"),
    "otel": (("opentelemetry.sdk",), "no traces are exported"),
    "demo": (("matplotlib", "plotille"), "no charts, and no `steersman demo` that draws them"),
}
_UNOPTIMISED = (
    "works; a Python built with --enable-optimizations uses 5 to 12 % less CPU per decision"
)
_UNCOMPILED = (
    "works, but a choice among more than three actions takes five times as long. If you use "
    "LinTS: install a C compiler, then reinstall this package with `--force-reinstall --no-deps "
    "--no-cache-dir`, or run `python -m tools.build_compiled` in a checkout"
)
_LEAST_FREE_GB, _FEW_FREE_GB = 0.5, 5.0
_SLOW_FLUSH_MS = 10.0
_FLUSHES = 15


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the output.

    Attributes:
        what: the checked part.
        verdict: ok; warn: works with a limitation; fail: does not work.
        found: the observed state.
        advice: what to do; empty: nothing.
    """

    what: str
    verdict: Verdict
    found: str
    advice: str = ""


def look_at_python() -> Iterator[Finding]:
    """Check the interpreter and the extras."""
    found = f"{platform.python_version()} ({sys.executable})"
    arguments = sysconfig.get_config_var("CONFIG_ARGS")
    optimised = is_optimised(arguments, sys.base_prefix)
    yield Finding("python", "ok", found, "" if optimised else _UNOPTIMISED)
    yield _look_at_compiled()
    for name, (modules, without) in _EXTRAS.items():
        missing = [module for module in modules if not _is_there(module)]
        if missing:
            advice = f"if you need it: {how_to_install(name)}"
            yield Finding(f"extra {name}", "warn", f"not installed: {without}", advice)
        else:
            yield Finding(f"extra {name}", "ok", "installed")


def _look_at_compiled() -> Finding:
    if is_compiled():
        return Finding("compiled", "ok", "LinTS choices among more than three actions")
    return Finding(
        "compiled", "warn", "nothing: the package was built without a C compiler", _UNCOMPILED
    )


def is_optimised(arguments: str | None, prefix: str) -> bool:
    """Return whether an interpreter was built with optimisations, as far as can be known.

    Args:
        arguments: its configure arguments from `sysconfig`; None: it was built without configure.

    >>> is_optimised("'--enable-shared'", "/srv/python/3.11.7")
    False
    >>> is_optimised("'--enable-optimizations' '--with-lto'", "/usr/local")
    True
    """
    return arguments is None or "--enable-optimizations" in arguments or prefix == "/usr"


def look_at_systems(*collected: Callable[[], object]) -> Iterator[Finding]:
    """Check the entry points of the installed systems, and what they add to the product.

    Args:
        collected: functions that collect what the systems add, such as commands and routes; they
            raise an error if a part is broken or its name is taken.
    """
    try:
        found = ", ".join(installed_systems())
        for collect in collected:
            collect()
    except SteersmanError as error:
        yield Finding("systems", "fail", str(error))
    else:
        yield Finding("systems", "ok", found or "none installed")


def look_at_home(home: Path) -> Iterator[Finding]:
    """Check the directory of all state, and the disk below it."""
    try:
        yield from _look_at_home(home)
    except OSError as error:
        found = f"{error.filename or home}: {error.strerror or error}"
        yield Finding("home", "fail", found, "make it writable for this user, and free disk space")


def _look_at_home(home: Path) -> Iterator[Finding]:
    if home.exists() and not home.is_dir():
        yield Finding("home", "fail", f"{home} is not a directory", "set --home to another")
        return
    if not home.is_dir():
        advice = "`steersman up` creates it; or set --home or STEERSMAN_HOME"
        yield Finding("home", "warn", f"{home} does not exist", advice)
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding("home", "fail", f"{home} is not writable", "make it writable for this user")
        return
    yield Finding("home", "ok", str(home.absolute()))
    yield _private(home / "secret", "the secret", 0o077, "chmod 600")
    free = shutil.disk_usage(home).free / 1e9
    verdict: Verdict = "ok" if free >= _FEW_FREE_GB else "warn"
    advice = "" if verdict == "ok" else "free space: `steersman data compact`, then `data retain`"
    yield Finding(
        "disk space", "fail" if free < _LEAST_FREE_GB else verdict, f"{free:.1f} GB free", advice
    )
    took_ms = _flush_ms(home)
    slow = took_ms > _SLOW_FLUSH_MS
    advice = "every decision waits for one flush: use a faster disk" if slow else ""
    yield Finding("disk flush", "warn" if slow else "ok", f"{took_ms:.2f} ms", advice)


def look_at_redis() -> Iterator[Finding]:
    """Check whether the Redis at ``REDIS_URL`` answers, if it is set."""
    url = os.environ.get("REDIS_URL")
    if not url:
        yield Finding("redis", "ok", "REDIS_URL is not set: PostgreSQL stores cached answers")
        return
    try:
        with RedisCache(url, UUID(int=0), timeout_s=3.0) as cache:
            yield Finding("redis", "ok", f"{cache.version()}, from REDIS_URL")
    except InputError as error:
        yield Finding("redis", "fail", str(error), "correct REDIS_URL, or unset it")
    except StoreError as error:
        advice = "start Redis, or correct REDIS_URL; until then PostgreSQL is used"
        yield Finding("redis", "warn", str(error), advice)


def look_at_service(url: str) -> Iterator[Finding]:
    """Check whether a service answers."""
    with urllib3.PoolManager(retries=False, timeout=3.0) as pool:
        try:
            alive = pool.request("GET", f"{url}/healthz")
            answer = pool.request("GET", f"{url}/readyz")
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            found = f"{url} does not answer: {type(error).__name__}"
            yield Finding("service", "warn", found, "`steersman up` or `steersman serve` starts it")
            return
    if not _is_ours(alive.data):
        found = f"{url} answers, but is not a Steersman service"
        yield Finding("service", "fail", found, "set --url or STEERSMAN_URL to another address")
    elif answer.status == 200:
        yield Finding("service", "ok", f"{url} is ready")
    else:
        why = answer.data.decode(errors="replace")[:300]
        yield Finding("service", "fail", f"{url} is not ready: {why}", "read the service's log")


def _is_ours(said: bytes) -> bool:
    """Return whether this is the answer of our ``/healthz``; any web server answers something."""
    try:
        return bool(json.loads(said) == {"alive": True})
    except (ValueError, RecursionError):
        return False


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _private(path: Path, what: str, mask: int, command: str) -> Finding:
    if not path.exists():
        return Finding(what, "ok", "created on first use, or set by STEERSMAN_SECRET")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & mask:
        return Finding(what, "fail", f"other users can read {path} ({mode:o})", f"{command} {path}")
    return Finding(what, "ok", f"{path}, readable by its owner only")


def _flush_ms(folder: Path) -> float:
    """Return the median time that this disk takes to make a small write durable."""
    took = []
    probe = folder / f".flush-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            for _ in range(_FLUSHES):
                begun = time.perf_counter()
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
                took.append(1000 * (time.perf_counter() - begun))
    finally:
        probe.unlink(missing_ok=True)
    return statistics.median(took)
