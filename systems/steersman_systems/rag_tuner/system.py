"""The RAG tuner as an installed system."""

from steersman.points.systems import Command, System

SYSTEM = System(
    "rag_tuner",
    "Chooses the retrieval configuration.",
    commands={
        "tune": Command(
            "Record, tune and evaluate retrieval configurations.",
            "steersman_systems.rag_tuner.commands.group:command",
        )
    },
    demo={
        "rag-tuner": Command(
            "Tune retrieval on a tool catalogue and test the gain on held-out questions.",
            "steersman_systems.rag_tuner.demo:rag_tuner",
        )
    },
    rollout_gates="steersman_systems.rag_tuner.commands.gates",
    service="steersman_systems.rag_tuner.service.routes:Tuning",
)
