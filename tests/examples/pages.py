"""Helpers that run the documentation: console commands, and a stand-in for the service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman import wire

if TYPE_CHECKING:
    from collections.abc import Callable


def commands(page: Path, *, but: tuple[str, ...] = ("export ",)) -> list[str]:
    """Return the console commands of a page, without those that begin with ``but``."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    typed: list[str] = []
    for line in "\n".join(blocks).splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif typed and typed[-1].endswith("\\"):
            typed[-1] = typed[-1][:-1] + line.strip()
        elif typed and typed[-1].count("'") % 2:  # a quoted text that goes on
            typed[-1] += "\n" + line.strip()
    return [command for command in typed if not command.startswith(but)]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a shell whose state directory is ``home``."""
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    return {**own, "PATH": path, "STEERSMAN_HOME": str(home), **more}


def type_in(command: str, environment: dict[str, str], folder: Path | None = None) -> str:
    """Run a command in a shell; return its standard output."""
    ran = subprocess.run(
        [shutil.which("bash") or "bash", "-c", command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    return ran.stdout


def stand_in(
    shares: dict[tuple[str, str], dict[str, float]], refused: str = ""
) -> Callable[[], None]:
    """Start an HTTP stand-in for the service and point ``STEERSMAN_URL`` at it.

    Args:
        shares: The distribution of each (skill, decision point); the most likely eligible action
            is drawn.
        refused: Event id that the stand-in refuses with 404.

    Returns:
        A function that stops the stand-in and restores the environment.
    """

    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/v1/decide":
                answers = [_decide(one, shares) for one in body.get("requests", [body])]
                self.answer({"decisions": answers} if "requests" in body else answers[0])
            else:
                rows = body["records"] + body["events"]
                self.answer({"results": [_store(one, refused) for one in rows]})

        def answer(self, value: dict[str, Any]) -> None:
            text = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    stack = ExitStack()
    home = stack.enter_context(tempfile.TemporaryDirectory())
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    for name, value in {
        "STEERSMAN_URL": f"http://127.0.0.1:{server.server_port}",
        "STEERSMAN_API_KEY": "sk-of-this-page",
        "STEERSMAN_HOME": home,
    }.items():
        os.environ[name] = value
        stack.callback(os.environ.pop, name, None)
    return stack.close


def _decide(request: dict[str, Any], points: dict[tuple[str, str], dict[str, float]]) -> Any:
    shares = points.get((request["skill"], request["decision"]))
    if shares is None:
        detail = f"no decision point {request['skill']}/{request['decision']}; declare it first"
        return {"problem": json.loads(wire.write(wire.Problem.of("not_found", detail)))}
    action = max(request.get("eligible", shares), key=shares.__getitem__)
    return {
        "decision_id": str(wire.new_id()),
        "action": action,
        "propensity": shares[action],
        "distribution": shares,
        "snapshot": "0.1.0",
        "update_seq": 41,
        "stage": "live",
        "arm": "control",
        "logged": True,
        "degraded": False,
    }


def _store(row: dict[str, Any], refused: str) -> dict[str, Any]:
    known = row.get("event_id") or row["decision_id"]
    if refused and known == refused:
        problem = wire.Problem.of("not_found", "no such episode; check the id")
        return {"id": known, "status": "refused", "problem": json.loads(wire.write(problem))}
    return {"id": known, "status": "stored"}
