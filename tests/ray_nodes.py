"""Two nodes of Ray on this machine, in a process of their own, of which the second can be lost.

The process is told on its standard input what to do, and tells on its standard output what it did:
Ray leaves open files and warnings behind, which would be errors in the process of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_MEMORY = 200_000_000
# A lost node is noticed after a second, and not after a quarter of a minute.
_NOTICED = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 3,
}


class Nodes:
    """Two nodes with one processor each; programs are run beside them."""

    def __init__(self, process, environment):
        self._process, self.environment = process, environment
        told = self._told()
        self.address, self.dashboard = told["address"], told["dashboard"]
        self.second = told["second"]

    def _told(self):
        line = self._process.stdout.readline()
        if not line:
            pytest.fail("Ray did not start; see what is above")
        return json.loads(line)

    def lose_the_second(self):
        """Kill it, with all that it is doing."""
        self._ask("lose")

    def have_a_second(self):
        """Start one if there is none."""
        if self.second is None:
            self._ask("add")

    def _ask(self, what):
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        self.second = self._told()["second"]

    def start(self, *arguments):
        """Start a program with this Python; what it says is read from its `stdout`."""
        command = [sys.executable, *map(str, arguments)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment, cwd=ROOT
        )


@contextmanager
def two_nodes():
    """Have them; all that they wrote is gone afterwards."""
    # A path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    environment = {
        **os.environ,
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    try:
        yield Nodes(process, environment)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _main():
    from ray.cluster_utils import Cluster  # noqa: PLC0415 (in the process alone)

    sizes = {"num_cpus": 1, "object_store_memory": _MEMORY}
    cluster = Cluster()
    head = cluster.add_node(
        **sizes, include_dashboard=True, dashboard_port=0, _system_config=_NOTICED
    )
    second = cluster.add_node(**sizes)
    about = {"address": head.gcs_address, "dashboard": f"http://{head.webui_url}"}
    _tell({**about, "second": second.node_id})
    for line in sys.stdin:
        if line.strip() == "lose":
            cluster.remove_node(second, allow_graceful=False)
            second = None
        else:
            second = cluster.add_node(**sizes)
        _tell({"second": second and second.node_id})
    cluster.shutdown()


def _tell(what):
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
