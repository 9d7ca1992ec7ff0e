"""Policies for all kinds of actions: pure, seeded, exact propensities, mergeable states.

One model per action: :class:`LinUCB`, :class:`BoundedLinUCB`, :class:`KernelUCB`, :class:`LinTS`,
:class:`EpsilonGreedy`, and :class:`BetaThompson` per key. One model over per-action features, for
candidates that change: :class:`JointSquareCB`, :class:`JointLinTS`. One model of the parts of mixed
actions: :class:`FactoredTS`. Selections from what a request offers: :class:`SequenceLinear` and
:class:`SequenceTrees`. Policies that do not learn: :class:`Fixed`, :class:`Rules`.
"""

from steersman.policies.base import ChoicePolicy as ChoicePolicy
from steersman.policies.beta_thompson import BetaThompson
from steersman.policies.choice import Choice as Choice
from steersman.policies.epsilon_greedy import EpsilonGreedy
from steersman.policies.factored import FactoredTS
from steersman.policies.fixed import Fixed, Rules
from steersman.policies.joint import JointLinTS, JointSquareCB
from steersman.policies.kernel_ucb import KernelUCB
from steersman.policies.lints import LinTS
from steersman.policies.linucb import BoundedLinUCB, LinUCB
from steersman.policies.sequence_linear import SequenceLinear
from steersman.policies.sequence_trees import SequenceTrees

__all__ = [
    "BetaThompson",
    "BoundedLinUCB",
    "EpsilonGreedy",
    "FactoredTS",
    "Fixed",
    "JointLinTS",
    "JointSquareCB",
    "KernelUCB",
    "LinTS",
    "LinUCB",
    "Rules",
    "SequenceLinear",
    "SequenceTrees",
]
