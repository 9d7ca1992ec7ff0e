"""A pool as a request: what is sent is what a served point declares, and links lead on."""

from pathlib import Path

import numpy as np

from steersman.points.policy_factory import initial_policy
from steersman.policies.offered import Offered, Progress, offered_names
from steersman.spec.loader import load
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.to_request import OFFERED, offered_request

SELECT = Path(__file__).parents[3] / "configs" / "evidence" / "select.yaml"
ROWS = [
    ("work", "Dawn over Abel", "Dawn over Abel was painted by Abel Stone."),
    ("maker", "Abel Stone", "Lived in the mountains and kept bees."),
    ("notes", "Notes on dawn", "Dawn, a painter, and nobody: where was it?"),
]
POINT = load(SELECT)


def asked():
    collection = Collection.of_texts(ROWS)
    pool = collection.pool(Question("q", "Who painted Dawn over Abel, and where?"), size=2)
    return pool, offered_request(pool, vector=POINT.actions.vector)


def test_a_request_is_as_the_point_declares():
    pool, request = asked()
    assert POINT.actions.features == OFFERED
    names = offered_names(request["eligible"], request["links"])
    assert set(names) == set(request["features"])
    width = len(OFFERED) + POINT.actions.vector
    assert {len(numbers) for numbers in request["features"].values()} == {width}
    rows = np.array([request["features"][name] for name in names])
    offered = Offered.of(request["eligible"], request["links"], rows)
    found = initial_policy(POINT).select(offered, rng=np.random.default_rng(0))
    assert len(pool) == 2
    assert set(found.picked) <= {"work", "maker", "notes"}


def test_what_a_passage_names_comes_in_once_it_is_picked():
    _, request = asked()
    assert "maker" not in request["eligible"]
    assert "maker" in request["links"]["work"]
    names = offered_names(request["eligible"], request["links"])
    rows = np.array([request["features"][name] for name in names])
    offered = Offered.of(request["eligible"], request["links"], rows)
    progress = Progress(offered, initial_policy(POINT).form)
    assert "maker" not in progress.names
    progress.take(progress.place("work"))
    assert "maker" in progress.names
