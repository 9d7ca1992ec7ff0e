"""Logs of evaluations, made from a recorded world by asking parts of it."""

import json

import numpy as np

from tests.systems.rag_tuner.worlds import SPACE


def rows(recorded, chosen, share=0.7, seed=0):
    """A line for each of some questions under each of some configurations."""
    rng, lines = np.random.default_rng(seed), []
    for one in chosen:
        asked = np.flatnonzero(rng.random(len(recorded)) < share)
        batch = recorded.evaluate(one, asked)
        for row, place in enumerate(asked):
            lines.append(
                {
                    "question": recorded.queries[place],
                    "configuration": one.parts(),
                    "quality": dict(zip(batch.measures, batch.quality[row].tolist(), strict=True)),
                    "latency_ms": float(batch.latency_ms[row]),
                    "cost": float(batch.cost[row]),
                    "category": recorded.categories[place],
                }
            )
    return lines


def some(count, seed=1):
    """Some configurations, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return [SPACE.all[place] for place in rng.choice(len(SPACE.all), count, replace=False)]


def written(file, lines):
    """The file, written."""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file
