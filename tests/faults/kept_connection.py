"""Calls of a service with one key after the other over one connection that is kept."""

from __future__ import annotations

from http.client import HTTPConnection
from urllib.parse import urlsplit

import msgspec


class Http:
    """One connection that is kept, and the number of calls over it."""

    def __init__(self, url):
        self.calls = 0
        self.asked = set()
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=30)

    def call(self, access, method, path, body=None):
        """Return status and body as bytes."""
        self.calls += 1
        self.asked.add((method, path.partition("?")[0]))
        headers = {
            "authorization": f"Bearer {access.key}",
            "content-type": "application/json",
            "x-request-id": "same",
        }
        sent = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, sent, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self):
        """Close the connection."""
        self._connection.close()
