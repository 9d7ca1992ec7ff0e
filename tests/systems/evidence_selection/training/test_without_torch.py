"""Without torch, PPO fails before any training."""

import pytest

from steersman.errors.install_hint import how_to_install
from tests.without_torch import without_torch


@pytest.mark.slow
def test_importing_ppo_says_what_to_install():
    found = without_torch("import steersman_systems.evidence_selection.training.ppo")
    assert "DataError: PPO needs the package torch" in found.stderr
    assert how_to_install("rl") in found.stderr


@pytest.mark.slow
def test_it_is_said_before_raft_and_not_as_an_error_of_python():
    """RAFT would reject an empty list of questions with another error."""
    found = without_torch(
        "from steersman.errors import DataError\n"
        "from steersman_systems.evidence_selection.raft_training import raft_then_ppo\n"
        "try:\n    raft_then_ppo([], None, 0)\n"
        "except DataError as told:\n    print(told)\n"
    )
    assert how_to_install("rl") in found.stdout, found.stderr


@pytest.mark.slow
def test_an_evaluation_leaves_ppo_out_and_says_why():
    found = without_torch(
        "from tests.systems.evidence_selection.conftest import ROWS\n"
        "from steersman_systems.evidence_selection.collection import Collection\n"
        "from steersman_systems.evidence_selection.question import Question\n"
        "from steersman_systems.evidence_selection.contenders import contenders\n"
        "from steersman_systems.evidence_selection.evaluate import evaluate\n"
        "held = Collection.of_texts(ROWS)\n"
        "asked = [Question(f'q{n}', text, gold=(gold,)) for n, (gold, _, text) in"
        " enumerate(ROWS)]\n"
        "pools = [held.pool(one, size=4) for one in asked]\n"
        "found = evaluate('few', pools, contenders(['+BC+RAFT+PPO']), folds=2)\n"
        "print(found.absent)\n"
    )
    assert how_to_install("rl") in found.stdout, found.stderr
