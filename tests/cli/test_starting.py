"""What is slow to import is not imported before it is needed: processes start the sooner."""

import subprocess
import sys

LATE = {"scipy.stats", "scipy.optimize", "scipy.signal", "matplotlib", "pandas", "sklearn"}
CODE = """
import sys
import steersman.cli.key, steersman.cli.monitor, steersman.cli.tenant, steersman.cli.data_store
print(*sys.modules)
import steersman.cli.serve, steersman.api.server
print(*sys.modules)
import steersman.cli.learn, steersman.cli.rollout, steersman.cli.snapshot, steersman.cli.up
import steersman.rollouts, steersman.stats, steersman.ope
print(*sys.modules)
"""


def test_what_is_slow_to_import_waits_for_its_use():
    command = [sys.executable, "-c", CODE]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    store, service, every = (set(line.split()) for line in said.splitlines())
    assert store & {"scipy", "steersman.policies", "steersman.retrieval"} == set()
    assert {"steersman.api.server", "numpy"} <= service
    assert "tuf" not in service  # a service without a trusted registry never needs it
    assert every & LATE == set()
