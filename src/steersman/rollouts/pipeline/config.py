"""Pipeline configuration: amount of data, training parameters, gates and canary.

The keys of the original ``config.json`` are accepted too, except ``max_variance``, which is
ambiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from steersman.errors import SpecError
from steersman.spec.base import (
    Declared,
    FormatVersion,
    Fraction,
    Identifier,
    Problem,
    as_validation_error,
)
from steersman.spec.rollout import Objective  # noqa: TC001 (pydantic reads it)
from steersman.spec.validation_errors import complaints, report
from steersman.spec.yaml_files import read_declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from steersman.spec.document import Document

MAX_CANARY = 0.1
_MIN_DECISIONS = 500
_CANARY_SHARE = 0.05

Count = Annotated[int, Field(ge=1, le=10**9)]
Level = Annotated[float, Field(gt=0, lt=1)]


def _once(part: Declared, name: str, old: str) -> Iterator[Problem]:
    given = getattr(part, name), getattr(part, old)
    if None not in given:
        allowed = f"one of {name} and {old}"
        yield Problem((old,), f"duplicate of {name}", given[1], allowed, "remove one of the two")


class Dataset(Declared):
    """How much of the log is read, and how much data is required."""

    lookback_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """Age of the oldest decision that is used, in days; above 0 to 3650."""
    min_decisions: Count | None = None
    """Minimum number of decisions with exact propensities and final rewards; default 500."""
    min_episodes: Count | None = None
    """Old name of min_decisions."""

    @property
    def minimum(self) -> int:
        """Return the minimum number of usable decisions."""
        return self.min_decisions or self.min_episodes or _MIN_DECISIONS

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "min_decisions", "min_episodes")


class Evaluation(Declared):
    """Gates that a candidate must pass on held-out decisions."""

    held_out_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the units held out for the evaluation; a copy of the candidate forgets them."""
    newest: Annotated[int, Field(ge=2, le=10**6)] = 20_000
    """Number of newest decisions from which the held-out units come."""
    level: Level = 0.95
    """Confidence level of the intervals of the value and of the difference."""
    min_effective_sample_size: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """Minimum effective sample size; null: as the point declares."""
    max_weight_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Maximum share of one importance weight in their sum; null: as the point declares."""
    min_value: Fraction | None = None
    """Minimum lower bound of the candidate's value; null: as the point declares."""
    min_policy_value: Fraction | None = None
    """Old name of min_value."""
    max_standard_error: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Maximum standard error of the value."""
    max_loss: Fraction = 0.01
    """Maximum loss of value against the live policy. The gate refuses a candidate that is shown to
    lose more; it does not require a shown gain."""
    max_variance: float | None = None
    """Refused, because it is ambiguous. Use max_standard_error instead."""

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "min_value", "min_policy_value")
        if self.max_variance is not None:
            yield Problem(
                ("max_variance",),
                "ambiguous: the variance of a reward between 0 and 1 is never above 0.25, however "
                "many decisions there are",
                self.max_variance,
                "max_standard_error of the estimated value, above 0 to 1",
                "use max_standard_error instead, such as 0.05",
            )


class Deployment(Declared):
    """Rollout of a candidate; absent fields are as the decision point declares."""

    canary_share: Annotated[float, Field(gt=0, le=MAX_CANARY)] | None = None
    """Share of units in the canary, above 0 to 0.1; default 0.05."""
    canary_traffic_pct: Annotated[float, Field(gt=0, le=100 * MAX_CANARY)] | None = None
    """Share of units in the canary in percent, above 0 to 10; old name of canary_share."""
    promote_after_canary: bool | None = None
    """Whether the rollout may continue after the canary; default true."""
    prod_after_canary: bool | None = None
    """Old name of promote_after_canary."""
    objective: Objective | None = None
    """Objective that must be shown before live; null: as the point declares."""
    concurrent: bool = False
    """Whether several points of the skill may have active rollouts at the same time."""

    @property
    def share(self) -> float:
        """Return the share of units in the canary."""
        if self.canary_traffic_pct is not None:
            return self.canary_traffic_pct / 100.0
        return _CANARY_SHARE if self.canary_share is None else self.canary_share

    @property
    def goes_on(self) -> bool:
        """Return whether the rollout may continue after the canary."""
        return self.promote_after_canary is not False and self.prod_after_canary is not False

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "canary_share", "canary_traffic_pct")
        yield from _once(self, "promote_after_canary", "prod_after_canary")


class PipelineConfig(Declared):
    """Configuration of a pipeline."""

    format: FormatVersion = 1
    """Version of this format."""
    dataset: Dataset = Dataset()
    """Amount of data."""
    training: dict[Identifier, dict[Identifier, Any]] = Field(default_factory=dict)
    """Parameters of the candidate by decision point: policy parameters, `dim` of the context,
    `floor`, or another `algorithm`. Default: the live policy, with more data."""
    evaluation: Evaluation = Evaluation()
    """Gates of the candidate."""
    deployment: Deployment = Deployment()
    """Rollout of the candidate."""


class LoadedConfig:
    """Configuration and its source document, for errors with line numbers.

    Args:
        config: the configuration.
        document: the parsed document.
        source: name of the file.
    """

    def __init__(self, config: PipelineConfig, document: Document, source: str) -> None:
        self.config, self.source = config, source
        self._document = document

    def refuse(self, error: ValidationError) -> SpecError:
        """Return an error with the line of each problem."""
        schema = PipelineConfig.model_json_schema()
        return SpecError(report(self.source, complaints(error, self._document, schema)))


def load_config(path: Path) -> LoadedConfig:
    """Read the configuration in a YAML or JSON file.

    Args:
        path: UTF-8 file, at most 256 KiB.

    Returns:
        The configuration with its defaults.

    Raises:
        SpecError: the file is unreadable or invalid. The message lists all problems, one per line:
            ``file:line: field: what; got VALUE; allowed RANGE; what to do``.
    """
    config, document = read_declared(path, PipelineConfig)
    return LoadedConfig(config, document, str(path))


def problems_at(problems: Iterable[Problem]) -> ValidationError:
    """Return problems as an error that `LoadedConfig.refuse` accepts."""
    return as_validation_error("pipeline", problems)
