"""Recorder of evaluations: every ranking of a space, once for every query."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.retrieval.results import SearchSettings
from steersman_systems.rag_tuner.hygiene import conversations
from steersman_systems.rag_tuner.recorded import Recorded, graded, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.retrieval.searcher import Searcher
    from steersman_systems.rag_tuner.configuration import Configuration, Space
    from steersman_systems.rag_tuner.judged_collections import JudgedCollection
    from steersman_systems.rag_tuner.recorded import Key

_IDEAL = 10
_RERANKER = "cosine"


def record(
    searcher: Searcher,
    collection: JudgedCollection,
    space: Space,
    *,
    about: Mapping[str, Any],
    reranker: str = _RERANKER,
    done: Callable[[int], None] | None = None,
) -> Recorded:
    """Evaluate every configuration of a space on every question of a collection.

    Args:
        done: Called with 1 after each question.

    Raises:
        DataError: An engine was unavailable.
        InputError: The space has several prompts, or the searcher does not support it.
    """
    check_space(space)
    # Without an embedder, fusion has only one ranking.
    extra = _baselines(space) if searcher.embedder else ()
    keys, depth = rankings_of(space, extra=extra), max(space.ks)
    settings = [_settings(key, depth, reranker) for key in keys]
    count = len(collection.questions)
    gains = np.zeros((len(keys), count, depth), np.float32)
    latency = np.zeros((len(keys), count), np.float32)
    for place, question in enumerate(collection.questions):
        ranked, took = _asked(searcher, question.text, settings)
        found = [collection.documents(positions) for positions in ranked]
        gains[:, place] = graded(found, question.gains, depth)
        latency[:, place] = took
        if done is not None:
            done(1)
    questions = collection.questions
    return Recorded(
        collection=collection.name,
        queries=tuple(one.id for one in questions),
        categories=tuple(one.category for one in questions),
        splits=tuple(one.split for one in questions),
        keys=keys,
        gains=gains,
        ideal=np.array([_ideal(one.gains) for one in questions], np.float32),
        relevant=np.array([len(one.gains) for one in questions], np.intp),
        latency_ms=latency,
        about={"reranker": reranker, "machine": platform.machine(), **about},
        groups=conversations(questions),
        times=tuple(one.updated for one in questions),
    )


def check_space(space: Space) -> None:
    """Refuse a space that cannot be recorded.

    Raises:
        InputError: The space has several prompts.
    """
    if len(space.prompts) != 1:
        raise InputError(
            f"prompts are {', '.join(space.prompts)}; expected one: the search does not depend on "
            "the prompt, and a recording has no answers"
        )


def rankings_of(space: Space, extra: Sequence[Configuration] = ()) -> tuple[Key, ...]:
    """Return the rankings of all configurations of a space.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> len(rankings_of(load_policy_config().space))
    92
    """
    return tuple(dict.fromkeys(key_of(one) for one in (*space.all, *extra)))


def _baselines(space: Space) -> list[Configuration]:
    """Return rank fusion, a common baseline without tuned parts."""
    from steersman_systems.rag_tuner.configuration import Configuration  # noqa: PLC0415

    pairs = [(again, more) for again in space.rerank for more in space.expansion]
    return [Configuration("rrf", rerank=again, expansion=more) for again, more in pairs]


def _settings(key: Key, depth: int, reranker: str) -> SearchSettings:
    variant, rerank, weight, expansion = key
    fused = variant not in {"bm25", "dense"}
    return SearchSettings(
        variant="hybrid" if fused else variant,  # type: ignore[arg-type]  # the same two names
        k=depth,
        fusion="rrf" if variant == "rrf" else "convex",
        fusion_weight=weight,
        rerank=reranker if rerank else "off",
        expansion=expansion,
    )


def _asked(
    searcher: Searcher, query: str, settings: Sequence[SearchSettings]
) -> tuple[list[NDArray[np.intp]], list[float]]:
    scored = searcher.scored(query)
    ranked, took = [], []
    for one in settings:
        found = scored.find(one)
        if found.degraded:
            message = f"{', '.join(found.degraded)} was not available for {query[:60]!r}"
            raise DataError(f"{message}; nothing is recorded; check it, and record again")
        ranked.append(np.array([hit.position for hit in found.hits], np.intp))
        took.append(sum(found.timings_ms.values()))
    return ranked, took


def _ideal(gains: Mapping[str, float]) -> list[float]:
    best = sorted(gains.values(), reverse=True)[:_IDEAL]
    return best + [0.0] * (_IDEAL - len(best))
