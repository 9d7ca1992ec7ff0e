"""Evidence selection as an installed system."""

from steersman.points.systems import Command, System

SYSTEM = System(
    "evidence_selection",
    "Chooses the passages for a question, one after the other.",
    commands={
        "evidence": Command(
            "Train, evaluate and run evidence selection.",
            "steersman_systems.evidence_selection.commands.group:command",
        )
    },
    demo={
        "evidence": Command(
            "Compare top-k and a learned selector on requests that need two tools.",
            "steersman_systems.evidence_selection.demo.command:evidence",
        )
    },
)
