"""Lets each of several test processes read only those files whose tests it runs.

pytest-xdist has every process read all tests before the first one runs: with four processes on two
cores that is more than a minute of processor in a fresh checkout. With this plugin in each of them
they list the files only, and read one when its turn comes. `WholeFiles` overrides a private method
of xdist for that minute: its own scheduler ends a process that has one item left.
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
"""A minute or more each: they are never what all others wait for in the end."""
_MANY = 100
"""Modules: so many more are a large library, never to be looked through for garbage again."""
_OVER_ALL = ("lf", "failedfirst", "newfirst", "stepwise")
"""Options of pytest that look at all tests before one runs."""


def register(config: pytest.Config) -> None:
    """Make it part of a run over several processes, if the run is one of whole files."""
    named = any("::" in asked for asked in config.args)
    if named or any(config.getoption(name, default=False) for name in _OVER_ALL):
        return
    if "read_late" in getattr(config, "workerinput", {}):
        config.pluginmanager.register(ReadLate())
    elif config.getoption("dist", "no") == "loadfile":
        config.pluginmanager.register(FilesBegun())


class Unread(pytest.Item):
    """Stands for the tests of a file until they are read."""

    def runtest(self) -> None:
        """Never run: `ReadLate` runs the tests of the file instead."""
        raise NotImplementedError


class ReadLate:
    """The plugin of a test process; see the module."""

    def __init__(self) -> None:
        self._turn: pytest.Collector | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Leave a file unread until its turn comes, and for good where no doctest stands in it."""
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
        """Put slow files first; what tests are wanted is looked at when they are read.

        A file is never split between processes. If a long one came last, all others would wait for
        it: the longest begin, then files with most slow tests, and examples in docs, each of a
        moment, even out what is left. Between them folders are mixed: tests of a service wait, and
        others reckon.
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
            session.items[place] = test  # what xdist tells that it runs
            item.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
            if session.shouldfail or session.shouldstop:
                break
        session.items[place] = item
        if not tests:  # the item itself ends what the last file left for one in its folder
            item.config.hook.pytest_runtest_setup(item=item)
            item.config.hook.pytest_runtest_teardown(item=item, nextitem=nextitem)
        return True

    def _read(self, item: Unread) -> list[pytest.Item]:
        self._turn = item.parent
        hook, before = item.config.hook, len(sys.modules)
        report = hook.pytest_make_collect_report(collector=item.parent)
        vars(report).pop("call", None)  # as pytest does; it cannot be sent
        hook.pytest_collectreport(report=report)
        tests = [test for node in report.result for test in item.session.genitems(node)]
        hook.pytest_collection_modifyitems(session=item.session, config=item.config, items=tests)
        if len(sys.modules) > before + _MANY:
            gc.collect()
            gc.freeze()
        return tests


class WholeFiles(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed
    """Hands out files, each of one item until it is read.

    A process begins with one when it knows the next, or that there is none. One started in place of
    a process that crashed may get a single file: it would wait for another for ever.
    """

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # begun after a crash, and still listing files
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class FilesBegun:
    """The plugin of the process that hands files out: their number of tests is not known yet."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._begun: set[str] = set()
        self._tests: set[str] = set()

    def pytest_configure_node(self, node: WorkerController) -> None:
        """Tell a test process to read late."""
        node.workerinput["read_late"] = True

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> WholeFiles:
        """Hand out files."""
        return WholeFiles(config, log)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep what the progress is taken from."""
        self._session = session

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Learn of the files; each process lists the same."""
        self._files = {_path(name) for name in ids}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Let the progress be the share of files begun."""
        self._tests.add(report.nodeid)
        self._begun.add(_path(report.nodeid))
        self._session.testscollected = len(self._tests) * len(self._files) // len(self._begun)


def _path(name: str) -> str:
    return name.partition("::")[0]


def _place(item: pytest.Item) -> tuple[int, bool, int]:
    path = item.path.relative_to(item.config.rootpath).as_posix()
    slow = 1000 if item.path.name in _LONGEST else item.path.read_text().count("mark.slow")
    return -slow, not path.startswith("tests/"), crc32(path.encode())
