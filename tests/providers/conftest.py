"""What tests of judging share: one server of chat completions, clean for each test."""

import pytest

from tests.providers.chat_server import chat_server


@pytest.fixture(scope="session")
def running_chat_server():
    with chat_server() as running:
        yield running


@pytest.fixture
def chat(running_chat_server):
    server = running_chat_server
    server.asked.clear()
    server.turns.clear()
    server.answer, server.usage, server.mode = "blue", None, None
    return server
