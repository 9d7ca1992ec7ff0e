"""Off-policy evaluation of a target policy on a log of other decisions.

:class:`LoggedData` holds a log. The evaluation first checks the importance weights. It then either
refuses the log and gives reasons, or estimates the value by IPS, SNIPS, the direct method and the
doubly robust estimator, each with a confidence interval.
"""

from __future__ import annotations

from steersman.ope.diagnostics import Diagnostics
from steersman.ope.estimators import DM, DR, ESTIMATORS, IPS, SNIPS, Estimator, Log
from steersman.ope.evaluation import Estimate, Report, evaluate, suited_estimator
from steersman.ope.logged_data import LoggedData, drawn_or_another, never_drawn
from steersman.ope.requests_needed import RequestsNeeded, requests_needed
from steersman.ope.rounds import Rounds
from steersman.ope.sequences import LoggedSequences, evaluate_sequences

__all__ = [
    "DM",
    "DR",
    "ESTIMATORS",
    "IPS",
    "SNIPS",
    "Diagnostics",
    "Estimate",
    "Estimator",
    "Log",
    "LoggedData",
    "LoggedSequences",
    "Report",
    "RequestsNeeded",
    "Rounds",
    "drawn_or_another",
    "evaluate",
    "evaluate_sequences",
    "never_drawn",
    "requests_needed",
    "suited_estimator",
]
