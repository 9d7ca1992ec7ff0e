"""The interrogator as an installed system."""

from steersman.points.systems import Command, System

SYSTEM = System(
    "interrogator",
    "Chooses the next question about an unknown embedding.",
    demo={
        "interrogator": Command(
            "Find the text behind an embedding, question by question.",
            "steersman_systems.interrogator.demo.command:interrogator",
        )
    },
    fetch="steersman_systems.assistant.data:fetch",  # both systems use the same requests
    record="steersman_systems.interrogator.data:record",
)
