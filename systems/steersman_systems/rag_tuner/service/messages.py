"""Request and answer messages of the RAG tuner's HTTP endpoint."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_DocId = Annotated[str, Meta(min_length=1, max_length=512)]
_Weight = Annotated[float, Meta(ge=0, le=100)]
MOST_SEARCHES = 4_000
"""Maximum number of searches per request (configurations times questions)."""
MOST_ANSWERS = 400
"""Maximum number of answered and judged questions per request (configurations times questions)."""


class AskedConfiguration(msgspec.Struct, forbid_unknown_fields=True):
    """One retrieval configuration.

    Attributes:
        variant: search method: bm25 (keywords), dense (embeddings), hybrid (weighted scores of
            both) or rrf (reciprocal rank fusion of both).
        k: number of passages, 1 to 100.
        rerank: whether to rerank the passages that were found.
        fusion_weight: weight of the dense score, 0 to 1; used by hybrid only.
        expansion: whether to add passages that the best passages refer to.
        prompt: prompt template for answering; used only where answers are judged.
    """

    variant: Literal["bm25", "dense", "hybrid", "rrf"] = "hybrid"
    k: Annotated[int, Meta(ge=1, le=100)] = 10
    rerank: bool = False
    fusion_weight: Annotated[float, Meta(ge=0, le=1)] = 0.5
    expansion: bool = False
    prompt: Literal["plain", "cited"] = "plain"


class AskedQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A question with the documents that answer it.

    Attributes:
        text: text of the question, 1 to 20,000 characters.
        gold: ids of the relevant documents, 1 to 100.
    """

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    gold: Annotated[list[_DocId], Meta(min_length=1, max_length=100)]


class Slice(msgspec.Struct, forbid_unknown_fields=True):
    """A random sample of the questions.

    Attributes:
        size: number of questions, 1 to 1,000; all questions if there are fewer.
        seed: random seed; the same seed selects the same questions.
    """

    size: Annotated[int, Meta(ge=1, le=1000)]
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0


class AskedWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the reward.

    Attributes:
        alpha: weight of F (faithfulness or its proxy), 0 to 100.
        beta: weight of R (relevancy or its proxy), 0 to 100.
        gamma: weight of latency, 0 to 100. Latency is divided by its threshold and capped at 2.
        delta: weight of cost, 0 to 100. Cost is in units of 16 passages and capped at 2.
        penalty: weight of each unit of penalty (lambda), 0 to 100.
    """

    alpha: _Weight = 0.5
    beta: _Weight = 0.5
    gamma: _Weight = 0.2
    delta: _Weight = 0.2
    penalty: _Weight = 1.0


class AskedAnswers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for answering the questions with a model and judging the answers.

    Attributes:
        max_cost_usd: spending limit in US dollars. Absent or above the server's limit: the server's
            limit. Refused if the server has no prices.
        max_calls: limit of model calls. Absent or above the server's limit: the server's limit.
        max_tokens: maximum length of an answer in tokens, 1 to 2,000.
        detectors: detectors that check the answers. A finding adds a penalty and goes to the review
            list.
        repeats: number of answers per question where `instability` is among the detectors, 2 to 10.
    """

    max_cost_usd: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    max_calls: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2000)] = 256
    detectors: Annotated[
        tuple[Literal["personal_data", "toxicity", "instability"], ...], Meta(max_length=3)
    ] = ("personal_data",)
    repeats: Annotated[int, Meta(ge=2, le=10)] = 3


class EvaluateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request to evaluate retrieval configurations on a corpus.

    Attributes:
        corpus: corpus name.
        configurations: 1 to 50 configurations; all others are compared with the first.
        questions: 1 to 1,000 questions; configurations times questions must be at most 4,000.
        snapshot: corpus snapshot; absent: newest revision.
        slice: random sample of the questions; absent: all questions.
        weights: weights of the reward; absent: default weights.
        answers: settings for answering and judging, at most 400 answers; absent: only the passages
            are judged.
        deadline_ms: timeout in milliseconds, 1 to 60,000.
    """

    corpus: _Name
    configurations: Annotated[list[AskedConfiguration], Meta(min_length=1, max_length=50)]
    questions: Annotated[list[AskedQuestion], Meta(min_length=1, max_length=1000)]
    snapshot: _Name | None = None
    slice: Slice | None = None
    weights: AskedWeights = AskedWeights()
    answers: AskedAnswers | None = None
    deadline_ms: Annotated[float, Meta(ge=1, le=60_000)] = 30_000.0


class ShownEstimate(msgspec.Struct, omit_defaults=True):
    """Mean over the questions.

    Attributes:
        value: mean.
        low: lower bound of the 95 % confidence interval; absent with one question.
        high: upper bound of the 95 % confidence interval; absent with one question.
    """

    value: float
    low: float | None = None
    high: float | None = None


class EvaluatedConfiguration(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Evaluation result of one configuration.

    Attributes:
        configuration: the configuration as requested.
        faithfulness_proxy: F where only passages are judged: recall@k of the gold documents.
        relevancy_proxy: R where only passages are judged: nDCG@min(k, 10).
        faithfulness: F where answers are judged: share of statements that the passages support;
            absent if no answer could be judged.
        relevancy: R where answers are judged; absent if no answer could be judged.
        coverage: shares of the questions that have F and R, where answers are judged.
        latency: L: mean of latency divided by its threshold, capped at 2 per question.
        cost: C: mean of passages divided by 16, capped at 2 per question. Where answers are
            written: dollars divided by their reference cost.
        penalty: P: units of penalty.
        reward: weighted reward; absent where it is undefined. Its interval treats the penalty as
            constant.
        breaches: hard gates that fail. A configuration with a breach must not serve, whatever its
            reward. Gates on faithfulness and relevancy apply to judged answers only.
        latency_p50_ms: median latency of search and answer in milliseconds.
        latency_p95_ms: 95th percentile of that latency in milliseconds; the latency gate checks it.
        questions: number of questions that count.
        degraded: number of questions excluded because a part of the search did not respond.
        unjudged: number of questions excluded for each reason. Send the request again to continue.
        failed: number of questions without an answer.
        violations: number of questions with an answer that a detector flags.
        unstable: number of questions whose answers differ between repeats.
        ahead_of_first: reward minus the reward of the first configuration on the same questions;
            absent for the first. The intervals of all configurations hold jointly at 95 %.
    """

    configuration: AskedConfiguration
    faithfulness_proxy: ShownEstimate | None = None
    relevancy_proxy: ShownEstimate | None = None
    faithfulness: ShownEstimate | None = None
    relevancy: ShownEstimate | None = None
    coverage: tuple[float, float] | None = None
    latency: float | None = None
    cost: float | None = None
    penalty: float | None = None
    reward: ShownEstimate | None = None
    breaches: list[str]
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    questions: int
    degraded: int = 0
    unjudged: dict[str, int] = {}
    failed: int = 0
    violations: int = 0
    unstable: int = 0
    ahead_of_first: ShownEstimate | None = None


class Spent(msgspec.Struct):
    """Cost of answering and judging.

    Attributes:
        answered_by: model that writes the answers.
        judged_by: model that judges the answers.
        embedded_by: embedder used for relevancy; ``served`` for an embedder with a URL.
        calls: model calls made for this request; cached calls are not repeated.
        cost_usd: cost of this request in US dollars.
        paid_before: number of questions answered from the cache.
        flagged: number of items that detectors found.
        filed: number of these that are new on the review list.
    """

    answered_by: str
    judged_by: str
    embedded_by: str
    calls: int
    cost_usd: float
    paid_before: int
    flagged: int
    filed: int


class Evaluation(msgspec.Struct, omit_defaults=True):
    """Evaluation of retrieval configurations on a corpus.

    Attributes:
        corpus: corpus name.
        revision: corpus revision that was searched.
        measures: names of the measures F and R.
        configurations: results in the order of the request.
        questions: number of questions asked.
        missing_gold: gold ids that are not in the corpus, the first 100; they count as missed.
        notes: remarks for reading the numbers.
        spent: cost of answering and judging; absent where only passages are judged.
    """

    corpus: str
    revision: int
    measures: list[str]
    configurations: list[EvaluatedConfiguration]
    questions: int
    missing_gold: list[str]
    notes: list[str]
    spent: Spent | None = None
