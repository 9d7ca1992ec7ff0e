"""pytest-xdist plugin: a test process imports only the files whose tests it runs.

By default every process imports all tests before the first one runs. With four processes on two
cores that is more than a minute of processor time in a fresh checkout. With this plugin processes
only list the files, and import one when its turn comes. `WholeFiles` overrides a private method of
xdist, because the default scheduler ends a process with one item left.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.workermanage import WorkerController

_LONGEST = {"test_demo.py", "test_kills.py", "test_run_to_its_end.py", "test_two_tenants.py"}
"""Files of a minute or more, which must not run last."""
_MANY = 100
"""Number of new modules of a large library, which garbage collection then skips."""
_OVER_ALL = ("lf", "failedfirst", "newfirst", "stepwise")
"""Options of pytest that need all tests before the first one runs."""


def register(config: pytest.Config) -> None:
    """Register the plugin in a parallel run with ``--dist loadfile``."""
    named = any("::" in asked for asked in config.args)
    if named or any(config.getoption(name, default=False) for name in _OVER_ALL):
        return
    if "read_late" in getattr(config, "workerinput", {}):
        config.pluginmanager.register(ReadLate())
    elif config.getoption("dist", "no") == "loadfile":
        config.pluginmanager.register(FilesBegun())


class Unread(pytest.Item):
    """Placeholder for the tests of a file before its import."""

    def runtest(self) -> None:
        """Never run: `ReadLate` runs the tests of the file instead."""
        raise NotImplementedError


class ReadLate:
    """Plugin of a test process; see the module."""

    def __init__(self) -> None:
        self._turn: pytest.Collector | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Delay the import of a file until its turn; skip it if it has no doctest."""
        if collector is self._turn or not isinstance(collector, pytest.File):
            return None
        kind = type(collector).__name__
        without = kind == "DoctestModule" and b">>>" not in collector.path.read_bytes()
        left: list[pytest.Item | pytest.Collector] = []
        if not without:
            left.append(Unread.from_parent(collector, name=kind))
        return pytest.CollectReport(collector.nodeid, "passed", None, left)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Put slow files first; tests are selected when their file is imported.

        A file is never split between processes, so a long one at the end would leave the others
        idle. The longest files come first, then those with most slow tests; the fast examples in
        docs come last. In between, folders are mixed, because tests of services wait and others
        compute.
        """
        unread = [item for item in items if isinstance(item, Unread)]
        if unread:
            items.clear()
        yield
        items.extend(sorted(unread, key=_place))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Read the file whose turn it is, and run its tests."""
        if not isinstance(item, Unread):
            return None
        session = item.session
        place = session.items.index(item)
        tests = self._read(item)
        for test, after in zip(tests, [*tests[1:], nextitem], strict=False):
            session.items[place] = test  # the item that xdist reports as running
            item.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = item
        if not tests:  # the item tears down fixtures that the last file kept for its folder
            item.config.hook.pytest_runtest_setup(item=item)
            item.config.hook.pytest_runtest_teardown(item=item, nextitem=nextitem)
        return True

    def _read(self, item: Unread) -> list[pytest.Item]:
        self._turn = item.parent
        hook, before = item.config.hook, len(sys.modules)
        report = hook.pytest_make_collect_report(collector=item.parent)
        vars(report).pop("call", None)  # as in pytest; it cannot be serialised
        hook.pytest_collectreport(report=report)
        tests = [test for node in report.result for test in item.session.genitems(node)]
        hook.pytest_collection_modifyitems(session=item.session, config=item.config, items=tests)
        if len(sys.modules) > before + _MANY:
            gc.collect()
            gc.freeze()
        return tests


class WholeFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed
    """Scheduler of files; each is one item until its import.

    A process starts an item only when it knows the next one, or that none is left. A replacement
    of a crashed process could get a single file and wait forever; this prevents it.
    """

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # started after a crash
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class FilesBegun:
    """Plugin of the controller, which does not know the number of tests per file."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._begun: set[str] = set()
        self._tests: set[str] = set()

    def pytest_configure_node(self, node: WorkerController) -> None:
        """Enable late imports in a test process."""
        node.workerinput["read_late"] = True

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> WholeFiles:
        """Return the scheduler of files."""
        return WholeFiles(config, log)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, whose number of tests sets the progress."""
        self._session = session

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Record the files; every process lists the same."""
        self._files = {_path(name) for name in ids}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set the progress to the share of started files."""
        self._tests.add(report.nodeid)
        self._begun.add(_path(report.nodeid))
        self._session.testscollected = len(self._tests) * len(self._files) // len(self._begun)


def _path(name: str) -> str:
    return name.partition("::")[0]


def _place(item: pytest.Item) -> tuple[int, bool, int]:
    path = item.path.relative_to(item.config.rootpath).as_posix()
    slow = 1000 if item.path.name in _LONGEST else item.path.read_text().count("mark.slow")
    return -slow, not path.startswith("tests/"), crc32(path.encode())
