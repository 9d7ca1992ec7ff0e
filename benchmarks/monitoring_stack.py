"""Real Prometheus and Alertmanager with a webhook, configured by deploy/prometheus.

Only the addresses differ from its files: each program gets a free port, and the webhook is local.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from ruamel.yaml import YAML

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CONFIGURATION",
    "PROGRAMS",
    "DeliveredAlert",
    "Monitors",
    "Webhook",
    "missing",
    "monitors",
    "until",
]

CONFIGURATION = Path(__file__).parent.parent / "deploy" / "prometheus"
PROGRAMS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
_START_S = 30.0
_STOP_S = 10.0
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class DeliveredAlert:
    """Alert that the webhook received.

    Args:
        at: Time of arrival, in seconds since 1970.
        path: URL path: ``/page`` or ``/alerts``.
        status: firing or resolved.
        labels: Labels of the alert; ``alertname`` is its name.
        annotations: Annotations of the alert.
    """

    at: float
    path: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Webhook(ThreadingHTTPServer):
    """Webhook of Alertmanager; appends alerts to ``delivered``.

    Example:
        >>> with Webhook() as hook:
        ...     hook.delivered
        []
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.delivered: list[DeliveredAlert] = []
        super().__init__((_HOST, 0), _Hook)

    def find(self, name: str, **labels: str) -> DeliveredAlert | None:
        """Return the first firing alert with a name and labels.

        Args:
            name: Name of the alert.
            labels: Required labels.
        """
        wanted = {"alertname": name, **labels}.items()
        for one in list(self.delivered):
            if one.status == "firing" and wanted <= one.labels.items():
                return one
        return None


class _Hook(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.delivered += [
            DeliveredAlert(time.time(), self.path, one["status"], one["labels"], one["annotations"])
            for one in body["alerts"]
        ]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its base names it)
        """Log nothing."""


@dataclass(frozen=True)
class Monitors:
    """Running programs.

    Args:
        url: URL of Prometheus.
        alertmanager: URL of Alertmanager.
        webhook: Webhook for alerts.
        folder: Folder of their files and logs.
    """

    url: str
    alertmanager: str
    webhook: Webhook
    folder: Path
    _pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(retries=False, timeout=5.0), repr=False
    )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query.

        Args:
            expression: PromQL expression.

        Returns:
                The ``result`` of Prometheus: ``metric`` and ``value`` each.
        """
        answer = self._pool.request(
            "GET", f"{self.url}/api/v1/query", fields={"query": expression}
        ).json()
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def wait(self, expression: str, *, within_s: float = 30.0) -> list[dict[str, Any]]:
        """Return the result of a query as soon as it is not empty.

        Args:
            expression: PromQL expression.
            within_s: Timeout in seconds.

        Raises:
            DataError: Timeout.
        """
        found: list[dict[str, Any]] = until(lambda: self.query(expression), expression, within_s)
        return found


def missing() -> list[str]:
    """Return which programs are not installed; ``tools/prometheus`` installs them."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def monitors(folder: Path, target: str) -> Iterator[Monitors]:
    """Run Prometheus, Alertmanager and a webhook until the block ends.

    Args:
        folder: Folder for their files.
        target: Scraped service with ``/metrics``, as host:port.

    Yields:
            The running programs.

    Raises:
        DataError: A program is not installed, or does not start.
    """
    if missing():
        message = f"{', '.join(missing())} not installed; run tools/prometheus, or install "
        raise DataError(message + "Debian's packages prometheus and prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    prometheus, alertmanager = (f"{_HOST}:{port}" for port in _free_ports(2))
    with ExitStack() as closing:
        webhook = closing.enter_context(Webhook())
        threading.Thread(target=webhook.serve_forever, args=(0.05,), daemon=True).start()
        closing.callback(webhook.shutdown)
        _configure(folder, target, alertmanager, f"http://{_HOST}:{webhook.server_port}")
        for name, command in _commands(folder, prometheus, alertmanager).items():
            closing.callback(_stop, _start(folder, name, command))
        running = Monitors(f"http://{prometheus}", f"http://{alertmanager}", webhook, folder)
        for url in (running.url, running.alertmanager):
            until(partial(_is_ready, f"{url}/-/ready"), f"{url} (see {folder})", _START_S)
        yield running


def _configure(folder: Path, target: str, alertmanager: str, hook: str) -> None:
    yaml = YAML(typ="safe", pure=True)
    scraping = yaml.load(CONFIGURATION / "prometheus.yml")
    scraping["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    scraping["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    routing = yaml.load(CONFIGURATION / "alertmanager.yml")
    for receiver in routing["receivers"]:
        for one in receiver["webhook_configs"]:
            one["url"] = hook + one["url"].removeprefix("http://127.0.0.1:9095")
    for name, document in (("prometheus.yml", scraping), ("alertmanager.yml", routing)):
        yaml.dump(document, folder / name)
    shutil.copy(CONFIGURATION / "alerts.yml", folder)


def _commands(folder: Path, prometheus: str, alertmanager: str) -> dict[str, list[str]]:
    return {
        "prometheus": [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address={prometheus}",
            "--log.level=warn",
        ],
        "alertmanager": [
            "prometheus-alertmanager",
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alerts'}",
            f"--web.listen-address={alertmanager}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ],
    }


def _start(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    with urllib3.PoolManager(retries=False, timeout=2.0) as pool:
        try:
            return pool.request("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            return False


def until(ask: Callable[[], Any], what: str, within_s: float) -> Any:
    """Call a function repeatedly and return its first true result.

    Args:
        ask: Function to call.
        what: Name of the result in the error message.
        within_s: Timeout in seconds.

    Raises:
        DataError: Timeout.

    Example:
        >>> until(lambda: 7, "luck", 1.0)
        7
    """
    deadline = time.monotonic() + within_s
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise DataError(f"waited {within_s:g} s in vain for {what}; is the machine very busy?")
        time.sleep(0.05)
    return answer


def _free_ports(count: int) -> list[int]:
    with ExitStack() as open_ones:
        probes = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
