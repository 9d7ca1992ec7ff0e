"""What is asked of the RAG tuner over HTTP, and what is answered."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_DocId = Annotated[str, Meta(min_length=1, max_length=512)]
_Weight = Annotated[float, Meta(ge=0, le=100)]
MOST_SEARCHES = 4_000
"""Configurations times questions of one request."""
MOST_ANSWERS = 400
"""The same, where each is answered and judged."""


class AskedConfiguration(msgspec.Struct, forbid_unknown_fields=True):
    """A retrieval configuration.

    Attributes:
        variant: bm25 (by words), dense (by meaning), hybrid (scores of both by weight) or rrf
            (ranks of both).
        k: how many passages, 1 to 100.
        rerank: whether the found ones are ranked again.
        fusion_weight: of meaning, 0 to 1; hybrid alone has it.
        expansion: whether passages that the best ones lead to are added.
        prompt: what the passages are put into, where questions are answered.
    """

    variant: Literal["bm25", "dense", "hybrid", "rrf"] = "hybrid"
    k: Annotated[int, Meta(ge=1, le=100)] = 10
    rerank: bool = False
    fusion_weight: Annotated[float, Meta(ge=0, le=1)] = 0.5
    expansion: bool = False
    prompt: Literal["plain", "cited"] = "plain"


class AskedQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A question and the documents that answer it.

    Attributes:
        text: what is asked, 1 to 20,000 characters.
        gold: ids of the right documents, one or more.
    """

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    gold: Annotated[list[_DocId], Meta(min_length=1, max_length=100)]


class Slice(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the questions, drawn at random.

    Attributes:
        size: how many; all if there are fewer.
        seed: of the draw: the same seed draws the same questions.
    """

    size: Annotated[int, Meta(ge=1, le=1000)]
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 0


class AskedWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What quality, time, money and trouble are worth against each other.

    Attributes:
        alpha: of the first measure.
        beta: of the second.
        gamma: of latency, in shares of the threshold, at most 2.
        delta: of cost, in units of 16 passages, at most 2.
        penalty: lambda, of each unit of penalty.
    """

    alpha: _Weight = 0.5
    beta: _Weight = 0.5
    gamma: _Weight = 0.2
    delta: _Weight = 0.2
    penalty: _Weight = 1.0


class AskedAnswers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Have the questions answered from what is found, and the answers judged, by models.

    Attributes:
        max_cost_usd: the most that may be spent on it; absent, or more than the server allows: as
            much as that. Refused where the server has no prices.
        max_calls: of models; likewise.
        max_tokens: of an answer.
        detectors: look at the answers; one that finds something is charged as a penalty, and what
            it found goes to the review list.
        repeats: how often a question is answered where `instability` is among the detectors.
    """

    max_cost_usd: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    max_calls: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2000)] = 256
    detectors: Annotated[
        tuple[Literal["personal_data", "toxicity", "instability"], ...], Meta(max_length=3)
    ] = ("personal_data",)
    repeats: Annotated[int, Meta(ge=2, le=10)] = 3


class EvaluateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Ask what configurations are worth on a corpus.

    Attributes:
        corpus: its name.
        configurations: 1 to 50; the others are compared with the first.
        questions: 1 to 1,000; with the configurations at most 4,000 searches.
        snapshot: of the corpus; absent: its newest revision.
        slice: ask some of the questions alone.
        weights: of the reward; absent: those that are shipped.
        answers: have answers written and judged, at most 400; absent: passages are judged alone.
        deadline_ms: how long the answer is waited for, 1 to 60,000.
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
    """A mean over questions.

    Attributes:
        value: the mean.
        low: lower end of its 95 % interval; absent with one question.
        high: upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


class EvaluatedConfiguration(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What a configuration is worth.

    Attributes:
        configuration: it.
        faithfulness_proxy: F where passages are judged alone: recall@k of the gold documents.
        relevancy_proxy: R likewise: nDCG@min(k, 10).
        faithfulness: F where answers are judged: the share of their statements that the passages
            bear out; absent where none could be judged.
        relevancy: R where answers are judged; likewise.
        coverage: shares of the questions that have F and R, where answers are judged.
        latency: L: mean of latency over its threshold, at most 2 for a question.
        cost: C: mean, at most 2 for a question, of passages over 16; where answers are written, of
            dollars over their reference.
        penalty: P, in units of penalty.
        reward: of all of them, by the weights; absent where it is not defined. Its interval takes
            the penalty as it is.
        breaches: hard gates that do not hold: such a configuration may not serve, whatever its
            reward. Gates on faithfulness and relevancy are checked of judged answers alone.
        latency_p50_ms: of search and answer.
        latency_p95_ms: likewise; the gate looks at it.
        questions: that count.
        degraded: questions that do not count: a part of the search was away for them.
        unjudged: questions that do not count: how many for each reason; ask again to go on.
        failed: questions that got no answer.
        violations: questions with an answer that a detector flags.
        unstable: questions whose answers differ when they are asked again.
        ahead_of_first: reward less that of the first configuration on the same questions; absent
            for the first. Intervals of all configurations hold together with 95 %.
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
    """What answering and judging took.

    Attributes:
        answered_by: name of the model that answers.
        judged_by: name of the model that judges.
        embedded_by: the embedder that relevancy depends on; ``served`` for one with an address.
        calls: of models, for this request; those that were made before are not made again.
        cost_usd: for this request.
        paid_before: questions of configurations that were known already.
        flagged: items that detectors found.
        filed: of these, how many are new on the review list.
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
    """What configurations are worth on a corpus.

    Attributes:
        corpus: its name.
        revision: that was searched.
        measures: names of F and R: what they are measured by.
        configurations: in the order of the request.
        questions: that were asked.
        missing_gold: ids that are no documents of the corpus, the first 100; they count as missed.
        notes: what to know about the numbers, in plain words.
        spent: on answers; absent where passages are judged alone.
    """

    corpus: str
    revision: int
    measures: list[str]
    configurations: list[EvaluatedConfiguration]
    questions: int
    missing_gold: list[str]
    notes: list[str]
    spent: Spent | None = None
