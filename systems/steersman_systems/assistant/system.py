"""The assistant as an installed system."""

from steersman.points.systems import Command, System

SYSTEM = System(
    "assistant",
    "Chooses cache tier, route and tool for each request.",
    skill="assistant",
    points=("cache", "route", "tool"),
    old_names={"routing": "route", "tools": "tool"},
    documents="steersman_systems.assistant.points:point_documents",
    sample=True,
    sample_request={
        "skill": "assistant",
        "decision": "route",
        "context": {"intent": "weather", "language": "latin", "text_len": 42, "score_gap": 0.3},
        "deadline_ms": 1000,
    },
    pipeline="steersman_systems.configs:assistant_pipeline",
    demo={
        "assistant": Command(
            "Learn cache tier, route and tool on 1,311 real requests.",
            "steersman_systems.assistant.demo.command:assistant",
        )
    },
    fetch="steersman_systems.assistant.data:fetch",
    record="steersman_systems.assistant.data:record",
)
