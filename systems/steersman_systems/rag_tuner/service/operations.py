"""Operations and message types of ``POST /tuner/evaluate``, for the OpenAPI document."""

from __future__ import annotations

from steersman.api.operations import Operation
from steersman.api.schemas import ref
from steersman_systems.rag_tuner.service.messages import EvaluateRequest, Evaluation

_EVALUATE = {
    "corpus": "manuals",
    "configurations": [{"variant": "bm25", "k": 5}, {"variant": "hybrid", "fusion_weight": 0.4}],
    "questions": [
        {"text": "why does the pump hum?", "gold": ["pumps.md"]},
        {"text": "how many amperes does the cable carry?", "gold": ["cables.txt"]},
    ],
}

OPERATIONS = (
    Operation(
        "post",
        "/tuner/evaluate",
        "Evaluate retrieval configurations on a corpus with labelled questions",
        "Evaluation",
        "decide",
        ref("EvaluateRequest"),
        {"one": _EVALUATE},
        ("not_found", "not_allowed", "too_many_requests"),
    ),
)
MESSAGES = (EvaluateRequest, Evaluation)
