"""The client's benchmark: both clients beside their peers, and the installed size."""

from __future__ import annotations

import pytest

from benchmarks import client
from benchmarks.report import Options


@pytest.mark.slow
def test_run_quick_measures_clients_peers_and_size() -> None:
    sync, alone, together, size = client.run(Options(quick=True))
    assert {"urllib3", "http.client"} <= set(sync.peers)
    assert "aiohttp" in alone.peers
    assert "32 at once" in together.name
    for figure in (sync, alone, together):
        assert 0 < figure.low <= figure.value <= figure.high
    assert size.holds
    assert size.value < size.peers["aiohttp"]
