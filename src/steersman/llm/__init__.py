"""Language models behind one seam: a prompt goes in, a text comes out, within a given time.

`Backend` is the seam. `ChatBackend` fills it with any server that speaks the chat completions of
OpenAI, as llama.cpp, vLLM, Ollama and the paid ones do.
"""

from __future__ import annotations

from steersman.llm.backend import Backend
from steersman.llm.chat import ChatBackend

__all__ = ["Backend", "ChatBackend"]
