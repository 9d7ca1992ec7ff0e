"""Training pipeline of a shipped system: from logged decisions to a rollout."""

from __future__ import annotations

from steersman.systems.pipeline.checking import check_pipeline
from steersman.systems.pipeline.config import (
    Dataset,
    Deployment,
    Evaluation,
    LoadedConfig,
    PipelineConfig,
    load_config,
    shipped_config,
)
from steersman.systems.pipeline.declaring import candidate_of
from steersman.systems.pipeline.reports import STEPS, Check, Gate, Step, StepReport
from steersman.systems.pipeline.running import Asked, run_pipeline
from steersman.systems.pipeline.shipped import SYSTEMS, System
from steersman.systems.pipeline.workshop import Workshop

__all__ = [
    "STEPS",
    "SYSTEMS",
    "Asked",
    "Check",
    "Dataset",
    "Deployment",
    "Evaluation",
    "Gate",
    "LoadedConfig",
    "PipelineConfig",
    "Step",
    "StepReport",
    "System",
    "Workshop",
    "candidate_of",
    "check_pipeline",
    "load_config",
    "run_pipeline",
    "shipped_config",
]
