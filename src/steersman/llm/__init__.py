"""Language models and judges: chat backends, judge measures, pairwise comparison.

`Backend` is the interface: a prompt in, a text out, within a timeout. `ChatBackend` uses a server
of OpenAI chat completions, such as llama.cpp, vLLM or Ollama; `LocalBackend` uses a GGUF file.

A `Judge` calls a backend within a `Budget`, at a `Rate`, with a `JudgeCache`. `Faithfulness` and
`Relevancy` score one answer, `judge_all` many. A score that cannot be computed is undefined, with a
reason. `PairwiseJudge` compares two answers in both orders; `agreement` compares a judge with
people.
"""

from __future__ import annotations

from steersman.llm.agreement import Agreement, Verdicts, agreement
from steersman.llm.backend import Backend, Completion, MeteredBackend
from steersman.llm.chat import ChatBackend
from steersman.llm.faithfulness import Faithfulness
from steersman.llm.judge import Judge, Retry
from steersman.llm.judge_cache import JudgeCache
from steersman.llm.judging import Judged, Measure, judge_all
from steersman.llm.local import UNTOLD, LocalBackend
from steersman.llm.pairwise import Pair, PairwiseJudge, Preference, abstentions
from steersman.llm.rate import Rate
from steersman.llm.relevancy import Relevancy, TextEmbedder
from steersman.llm.scored import Case, Coverage, Scored, Statement, column, coverage
from steersman.llm.spending import Budget, Prices

__all__ = [
    "UNTOLD",
    "Agreement",
    "Backend",
    "Budget",
    "Case",
    "ChatBackend",
    "Completion",
    "Coverage",
    "Faithfulness",
    "Judge",
    "JudgeCache",
    "Judged",
    "LocalBackend",
    "Measure",
    "MeteredBackend",
    "Pair",
    "PairwiseJudge",
    "Preference",
    "Prices",
    "Rate",
    "Relevancy",
    "Retry",
    "Scored",
    "Statement",
    "TextEmbedder",
    "Verdicts",
    "abstentions",
    "agreement",
    "column",
    "coverage",
    "judge_all",
]
