"""A small world that takes two passages: six bands, the towns they come from, and their bridges."""

from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.prepared_set import ready
from steersman_systems.evidence_selection.question import Question, Turn
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder

BANDS = ("Rush", "Toto", "Yes", "Queen", "Kiss", "Wham")
TOWNS = ("Toronto", "Angeles", "London", "Detroit", "Paris", "Warsaw")


def bands(*, history=False, embedder=None, size=6):
    """Return the world made ready: the band is found by its name, its town by a link alone."""
    found = SetBuilder("bands", at_most=100)
    for place, (band, town) in enumerate(zip(BANDS, TOWNS, strict=True)):
        text = f"{band} is a band. {band} comes from {town} and plays loud songs."
        found.passage("here", f"b{place}", text, f"{band} (band)")
        text = f"{town} is a town with a river and {place + 3} bridges."
        found.passage("here", f"t{place}", text, town)
    for place, band in enumerate(BANDS):
        said = (Turn("user", f"Tell me of {band}."), Turn("agent", "It plays.")) if history else ()
        question = Question(
            f"q{place}",
            f"How many bridges has the town where the band {band} comes from?",
            history=said,
            answers=(f"{place + 3} bridges",),
            gold=(f"b{place}", f"t{place}"),
        )
        found.ask("here", question, conversation=f"c{place // 2}")
    evidence = found.done("here")
    return ready(evidence, Collection(evidence.passages, embedder=embedder), size=size)
