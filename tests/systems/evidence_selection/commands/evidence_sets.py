"""A small set of questions on disk, each of which needs two passages."""

import json

from tests.systems.evidence_selection.bands import BANDS, TOWNS


def rows(content):
    """Return JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in content)


def write_bands(folder):
    """Write twelve bands with their towns and a question each."""
    passages, questions = [], []
    for n in range(12):
        band, town = f"{BANDS[n % 6]}{n}", f"{TOWNS[n % 6]}{n}"
        text = f"{band} is a band. {band} comes from {town} and plays loud songs."
        passages.append({"id": f"b{n}", "title": f"{band} (band)", "text": text})
        text = f"{town} is a town with a river and {n} bridges."
        passages.append({"id": f"t{n}", "title": town, "text": text})
        asked = f"How many bridges has the town where the band {band} comes from?"
        questions.append({"id": f"q{n}", "question": asked, "answers": [f"{n} bridges"],
                          "gold": [f"b{n}", f"t{n}"]})  # fmt: skip
    folder.mkdir()
    (folder / "passages.jsonl").write_text(rows(passages), encoding="utf-8")
    (folder / "questions.jsonl").write_text(rows(questions), encoding="utf-8")
