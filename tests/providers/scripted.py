"""A judge that knows what it will say, behind a real server, and a clock that waits for nobody."""

import json
import threading

from steersman.providers.chat import ChatBackend
from steersman.providers.judges.judge import Judge
from steersman.providers.spending_limit import Rate


def told(prompt):
    """Return what a prompt says between its task and its example: the texts to be judged."""
    (line,) = [line for line in prompt.splitlines() if line.startswith("DATA ")]
    return json.loads(line.removeprefix("DATA "))


class Script:
    """Answers the three kinds of prompts by what it was given.

    ``statements``: answer -> those it makes; ``supported``: what contexts bear out; ``questions``:
    answer -> those it would fit, or None where it is noncommittal.
    """

    def __init__(self, statements=None, supported=(), questions=None):
        self.statements = statements or {}
        self.supported = set(supported)
        self.questions = questions or {}

    def __call__(self, prompt):
        data = told(prompt)
        if "contexts" in data:
            return json.dumps({"verdicts": [self._verdict(one) for one in data["statements"]]})
        if "count" in data:
            found = self.questions[data["answer"]]
            return json.dumps({"noncommittal": found is None, "questions": found or []})
        return json.dumps({"statements": self.statements[data["answer"]]})

    def _verdict(self, one):
        supported = one["statement"] in self.supported
        return {"number": one["number"], "grounds": "as written", "supported": supported}


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.slept = []
        self._lock = threading.Lock()

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds


def judge_at(server, mode="ok", *, clock=None, per_s=None, **given):
    """Return a judge that asks a server, and wastes no real time on waiting."""
    clock = clock or Clock()
    backend = ChatBackend(server.url(mode), "judge", clock=clock)
    rate = Rate(per_s, clock=clock, sleep=clock.sleep)
    return Judge(backend, rate=rate, timeout_s=given.pop("timeout_s", 30), **given)
