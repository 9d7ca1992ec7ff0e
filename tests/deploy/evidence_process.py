"""A program that measures selectors and draws selections on a cluster, and prints what came of it.

Its first argument is the cluster's address, or ``here``; its second a folder for marks.
"""

import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.contenders import LinearlyCloned
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluate import evaluate
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.rounds import walks_over
from tests.systems.evidence_selection.bands import bands

LIMITS = Limits(picks=2, expanding="always", may_stop=False)
FOLDS = 6


@dataclass(frozen=True)
class Marking:
    """A clone that leaves a mark which says where it is trained, and takes a while."""

    name: str
    marks: Path
    inner: LinearlyCloned

    def fitted(self, pools):
        """Train it."""
        fold = "-".join(sorted(pool.question.id for pool in pools))
        with (self.marks / f"{fold}@{_node()}").open("a"):
            pass
        time.sleep(0.5)
        return self.inner.fitted(pools)


def _node():
    if "ray" not in sys.modules:
        return "here"
    import ray  # noqa: PLC0415 (on the node that it runs on)

    return ray.get_runtime_context().get_node_id()


def measured(address, marks):
    """Return every selection of an evaluation, and every draw of a log, as JSON has them."""
    prepared = bands()
    contender = Marking("clone", marks, LinearlyCloned("clone", LIMITS))
    found = evaluate("bands", prepared.pools, [contender], folds=FOLDS, address=address)
    tasks = [EvidenceTask(pool, Environment(LIMITS)) for pool in prepared.pools]
    sample = walks_over(address, questions=2)
    scorer = NetworkScorer.linear(np.linspace(-1.0, 1.0, len(FEATURES)))
    log = sample(tasks, scorer, StepRule(4, 1.0, 0.2), each=5, seed=3)
    return {
        "selected": [[row.question, *row.selection.picked] for row in found.rows["clone"]],
        "why": [[dict(one) for one in row.selection.why] for row in found.rows["clone"]],
        "drawn": [
            [one.task, one.reward, one.propensity, [[t.step.action, t.step.p] for t in one.taken]]
            for one in log
        ],
    }


if __name__ == "__main__":
    where, folder = sys.argv[1:]
    with redirect_stdout(sys.stderr):  # where Ray tells of lost nodes
        told = measured(None if where == "here" else where, Path(folder))
    sys.stdout.write(json.dumps(told))
