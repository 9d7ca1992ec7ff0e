"""Interrogator (system 003): finds the text behind an embedding with questions.

`investigate` asks questions about a target; each answer is appended to a hypothesis until it is
close
to the target. A `Chooser` selects each question: the `Heuristic`, or the `Learned` policy of the
decision point. See README.md in this folder.
"""

from __future__ import annotations

from steersman.systems.interrogator.answer_cache import (
    AnswerCache,
    MemoryCache,
    cache_key,
    text_key,
)
from steersman.systems.interrogator.answers import (
    Answer,
    Answerer,
    OptionAnswerer,
    embedded,
    similarities,
)
from steersman.systems.interrogator.cache_in_line import CacheInLine, open_answer_cache
from steersman.systems.interrogator.choosers import (
    Chooser,
    Drawn,
    Heuristic,
    Learned,
    Uniform,
    certain,
    worth,
)
from steersman.systems.interrogator.drift import DriftGuard, Guarded
from steersman.systems.interrogator.drift_reference import Reference
from steersman.systems.interrogator.exhaustive import Exhaustive
from steersman.systems.interrogator.investigation import (
    LIMIT,
    MISS_COST,
    STOP_AT,
    Investigation,
    Step,
    investigate,
)
from steersman.systems.interrogator.llm_answers import LLMAnswerer
from steersman.systems.interrogator.metrics import InterrogatorMetrics
from steersman.systems.interrogator.nearest import Nearest
from steersman.systems.interrogator.point import load_point, point_document
from steersman.systems.interrogator.questions import Questions, Template, load_questions
from steersman.systems.interrogator.recording import warm_started
from steersman.systems.interrogator.situation import Situation
from steersman.systems.interrogator.step_log import StepLog, load_steps, record_steps, warm
from steersman.systems.interrogator.target_sets import SETS, load_targets, recorded_vectors
from steersman.systems.interrogator.targets import Target, normalised, part_of, unit_vector

__all__ = [
    "LIMIT",
    "MISS_COST",
    "SETS",
    "STOP_AT",
    "Answer",
    "AnswerCache",
    "Answerer",
    "CacheInLine",
    "Chooser",
    "Drawn",
    "DriftGuard",
    "Exhaustive",
    "Guarded",
    "Heuristic",
    "InterrogatorMetrics",
    "Investigation",
    "LLMAnswerer",
    "Learned",
    "MemoryCache",
    "Nearest",
    "OptionAnswerer",
    "Questions",
    "Reference",
    "Situation",
    "Step",
    "StepLog",
    "Target",
    "Template",
    "Uniform",
    "cache_key",
    "certain",
    "embedded",
    "investigate",
    "load_point",
    "load_questions",
    "load_steps",
    "load_targets",
    "normalised",
    "open_answer_cache",
    "part_of",
    "point_document",
    "record_steps",
    "recorded_vectors",
    "similarities",
    "text_key",
    "unit_vector",
    "warm",
    "warm_started",
    "worth",
]
