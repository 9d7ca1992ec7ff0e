"""RAG tuner (system 000): chooses a retrieval configuration from measured evaluations.

A strategy asks for evaluations and gets their results. Its recommendation is judged once, on
held-out
queries. See README.md in this folder. The canary is in `canary`, which imports the rollout package.
"""

from __future__ import annotations

from steersman.systems.mlflow_runs import Exported
from steersman.systems.rag_tuner.answering import Answers
from steersman.systems.rag_tuner.comparing import Compared, compare
from steersman.systems.rag_tuner.configuration import Configuration, Space
from steersman.systems.rag_tuner.evaluating import LiveEvaluator, Measured
from steersman.systems.rag_tuner.frontier import Place, places
from steersman.systems.rag_tuner.grounding import (
    GroundedAnswer,
    Grounding,
    grounding,
    write_answers,
)
from steersman.systems.rag_tuner.holdout import Holdout
from steersman.systems.rag_tuner.hygiene import check_leakage, cleaned, repeated
from steersman.systems.rag_tuner.limits import Limits
from steersman.systems.rag_tuner.log_reading import read_log
from steersman.systems.rag_tuner.logged import Logged, load_world
from steersman.systems.rag_tuner.manifest import (
    Manifest,
    check,
    describe,
    load_manifest,
    write_manifest,
)
from steersman.systems.rag_tuner.mlflow_export import export_run
from steersman.systems.rag_tuner.policy_config import Tuned, load_policy_config
from steersman.systems.rag_tuner.predictions import append_log, write_predictions
from steersman.systems.rag_tuner.recorded import Recorded, load_recorded
from steersman.systems.rag_tuner.recording import record
from steersman.systems.rag_tuner.reviewing import Flagged, flagged_answers
from steersman.systems.rag_tuner.reward import Batch, Reward, reward_of
from steersman.systems.rag_tuner.run_folder import RunFolder
from steersman.systems.rag_tuner.serving import (
    barred,
    broken,
    configuration_of,
    declared_with,
    eligible,
)
from steersman.systems.rag_tuner.shadow import Mirrored, mirror
from steersman.systems.rag_tuner.slices import Split, enough, rotating, stratified, temporal
from steersman.systems.rag_tuner.strategies import Strategy, build_strategy
from steersman.systems.rag_tuner.sweep import Swept, sweep
from steersman.systems.rag_tuner.tuning import Evaluated, Evaluator, retell, tune
from steersman.systems.rag_tuner.verdict import Verdict, judge

__all__ = [
    "Answers",
    "Batch",
    "Compared",
    "Configuration",
    "Evaluated",
    "Evaluator",
    "Exported",
    "Flagged",
    "GroundedAnswer",
    "Grounding",
    "Holdout",
    "Limits",
    "LiveEvaluator",
    "Logged",
    "Manifest",
    "Measured",
    "Mirrored",
    "Place",
    "Recorded",
    "Reward",
    "RunFolder",
    "Space",
    "Split",
    "Strategy",
    "Swept",
    "Tuned",
    "Verdict",
    "append_log",
    "barred",
    "broken",
    "build_strategy",
    "check",
    "check_leakage",
    "cleaned",
    "compare",
    "configuration_of",
    "declared_with",
    "describe",
    "eligible",
    "enough",
    "export_run",
    "flagged_answers",
    "grounding",
    "judge",
    "load_manifest",
    "load_policy_config",
    "load_recorded",
    "load_world",
    "mirror",
    "places",
    "read_log",
    "record",
    "repeated",
    "retell",
    "reward_of",
    "rotating",
    "stratified",
    "sweep",
    "temporal",
    "tune",
    "write_answers",
    "write_manifest",
    "write_predictions",
]
