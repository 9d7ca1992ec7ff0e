"""Bandit policies with exact propensities and mergeable states.

- One model per action: :class:`LinUCB`, :class:`BoundedLinUCB`, :class:`KernelUCB`,
  :class:`LinTS`, :class:`EpsilonGreedy`, :class:`BetaThompson` (per key).
- One model over action features, for changing candidates: :class:`JointSquareCB`,
  :class:`JointLinTS`.
- One model over the parts of mixed actions: :class:`FactoredTS`.
- Sequences: :class:`SequenceLinear`, :class:`SequenceTrees`, with a :class:`StepRule`. Scorers of
  steps: :class:`TreeScorer`, :class:`NetworkScorer`.
- No learning: :class:`Fixed`, :class:`Rules`.
"""

from steersman.policies.base import ChoicePolicy
from steersman.policies.beta_choice import beta_choice_probabilities
from steersman.policies.beta_thompson import BetaThompson
from steersman.policies.building import build, load_policy, warm_start
from steersman.policies.choice import Choice
from steersman.policies.configurations import Configurations, are_configurations
from steersman.policies.epsilon_greedy import EpsilonGreedy
from steersman.policies.factored import FactoredTS
from steersman.policies.fixed import Fixed, Rules
from steersman.policies.gaussian_choice import gaussian_choice_probabilities
from steersman.policies.joint import JointLinTS, JointSquareCB
from steersman.policies.kernel_ucb import KernelUCB
from steersman.policies.linear import decide_alike
from steersman.policies.lints import LinTS
from steersman.policies.linucb import BoundedLinUCB, LinUCB
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.offered import Offered, Progress, SequenceForm, offered_names
from steersman.policies.scorers import Scorer, SummedScorer, scorer_from_state, scorer_state
from steersman.policies.sequence import (
    Step,
    StepRule,
    draw_step,
    sequence_propensity,
    step_distribution,
)
from steersman.policies.sequence_linear import SequenceLinear
from steersman.policies.sequence_trees import SequenceTrees
from steersman.policies.sequential import Foreseen, Selected, SequencePolicy
from steersman.policies.tree_scorer import TreeScorer
from steersman.policies.withdrawing import withdraw

__all__ = [
    "BetaThompson",
    "BoundedLinUCB",
    "Choice",
    "ChoicePolicy",
    "Configurations",
    "EpsilonGreedy",
    "FactoredTS",
    "Fixed",
    "Foreseen",
    "JointLinTS",
    "JointSquareCB",
    "KernelUCB",
    "LinTS",
    "LinUCB",
    "NetworkScorer",
    "Offered",
    "Progress",
    "Rules",
    "Scorer",
    "Selected",
    "SequenceForm",
    "SequenceLinear",
    "SequencePolicy",
    "SequenceTrees",
    "Step",
    "StepRule",
    "SummedScorer",
    "TreeScorer",
    "are_configurations",
    "beta_choice_probabilities",
    "build",
    "decide_alike",
    "draw_step",
    "gaussian_choice_probabilities",
    "load_policy",
    "offered_names",
    "scorer_from_state",
    "scorer_state",
    "sequence_propensity",
    "step_distribution",
    "warm_start",
    "withdraw",
]
