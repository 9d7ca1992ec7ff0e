"""Language models behind one seam: a prompt goes in, a text comes out, within a given time.

`Backend` is the seam. `ChatBackend` fills it with any server that speaks the chat completions of
OpenAI, as llama.cpp, vLLM, Ollama and the paid ones do; `LocalBackend` with a file of weights.

A `Judge` asks one patiently: within a `Budget`, at a `Rate`, keeping the answers in a `JudgeCache`.
`Faithfulness` and `Relevancy` judge one answer by it, `judge_all` many; what could not be judged is
undefined with its reason, never a number. `PairwiseJudge` compares two answers, in both orders;
`agreement` holds a judge against people.
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
