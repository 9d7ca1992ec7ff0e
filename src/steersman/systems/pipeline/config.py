"""What a pipeline is told: how much data it wants, what it trains, its gates, its canary.

The keys of the original ``config.json`` are understood beside ours, except the one that does not
say what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from steersman.errors import SpecError
from steersman.spec import Objective  # noqa: TC001 (pydantic reads it)
from steersman.spec.base import (
    Declared,
    FormatVersion,
    Fraction,
    Identifier,
    Problem,
    as_validation_error,
)
from steersman.spec.complaints import complaints, report
from steersman.spec.reading import read_declared, shipped

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
        yield Problem((old,), f"the same as {name}", given[1], allowed, "remove one of the two")


class Dataset(Declared):
    """How much of the log is looked at, and how much there has to be."""

    lookback_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """Days; decisions before are neither counted nor judged on."""
    min_decisions: Count | None = None
    """Least number of decisions with exact propensities and final rewards; 500 unless declared."""
    min_episodes: Count | None = None
    """The same, by its old name."""

    @property
    def minimum(self) -> int:
        """Least number of usable decisions."""
        return self.min_decisions or self.min_episodes or _MIN_DECISIONS

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "min_decisions", "min_episodes")


class Evaluation(Declared):
    """What a candidate must show on decisions that it has not learned from."""

    held_out_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the units that it is judged on; what it learned of them is taken out of a copy."""
    newest: Annotated[int, Field(ge=2, le=10**6)] = 20_000
    """Decisions among which these units are looked for, the newest first."""
    level: Level = 0.95
    """Level of the intervals of the value and of the difference."""
    min_effective_sample_size: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """Least effective sample size of the importance weights; null: as the point declares."""
    max_weight_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Greatest share of one importance weight in their sum; null: as the point declares."""
    min_value: Fraction | None = None
    """Least lower bound of the candidate's value; null: as the point declares."""
    min_policy_value: Fraction | None = None
    """The same, by its old name; of the lower bound too."""
    max_standard_error: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Greatest standard error of the value."""
    max_loss: Fraction = 0.01
    """Loss of value against what serves that may be shown: what is shown to lose more is refused,
    not what could not be shown to win."""
    max_variance: float | None = None
    """Refused: it does not say of what. Name max_standard_error instead."""

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "min_value", "min_policy_value")
        if self.max_variance is not None:
            yield Problem(
                ("max_variance",),
                "the variance of what is not said: that of a reward between 0 and 1 is never above "
                "0.25, with five decisions or five million",
                self.max_variance,
                "max_standard_error, of the estimated value, above 0 to 1",
                "name max_standard_error instead, such as 0.05",
            )


class Deployment(Declared):
    """How a candidate comes to serve; what is not said here is as the point declares."""

    canary_share: Annotated[float, Field(gt=0, le=MAX_CANARY)] | None = None
    """Share of units that the canary serves, above 0 to 0.1; 0.05 unless declared."""
    canary_traffic_pct: Annotated[float, Field(gt=0, le=100 * MAX_CANARY)] | None = None
    """The same in percent, above 0 to 10."""
    promote_after_canary: bool | None = None
    """Whether the rollout may go on after the canary; it may unless declared otherwise."""
    prod_after_canary: bool | None = None
    """The same, by its old name."""
    objective: Objective | None = None
    """What must have been shown before live; null: as the point declares."""
    concurrent: bool = False
    """Whether rollouts of several points of the skill may be under way at once."""

    @property
    def share(self) -> float:
        """Share of units that the canary serves."""
        if self.canary_traffic_pct is not None:
            return self.canary_traffic_pct / 100.0
        return _CANARY_SHARE if self.canary_share is None else self.canary_share

    @property
    def goes_on(self) -> bool:
        """Whether the rollout may go on after the canary."""
        return self.promote_after_canary is not False and self.prod_after_canary is not False

    def _problems(self) -> Iterator[Problem]:
        yield from _once(self, "canary_share", "canary_traffic_pct")
        yield from _once(self, "promote_after_canary", "prod_after_canary")


class PipelineConfig(Declared):
    """What a pipeline is told."""

    format: FormatVersion = 1
    """Version of this format."""
    dataset: Dataset = Dataset()
    """How much data it wants."""
    training: dict[Identifier, dict[Identifier, Any]] = Field(default_factory=dict)
    """Parameters of the candidate by decision point: any of its policy, `dim` of its context,
    `floor`, or another `algorithm`. Without any the candidate is what serves, with more data."""
    evaluation: Evaluation = Evaluation()
    """The gates."""
    deployment: Deployment = Deployment()
    """The canary, and what comes after it."""


class LoadedConfig:
    """A configuration and the document it was read from, to complain at the right line.

    Args:
        config: the configuration.
        document: what it was read from.
        source: name of the file.
    """

    def __init__(self, config: PipelineConfig, document: Document, source: str) -> None:
        self.config, self.source = config, source
        self._document = document

    def refuse(self, error: ValidationError) -> SpecError:
        """Return the error that tells what is wrong, each at its own line.

        Args:
            error: found after reading, with places in the configuration.
        """
        schema = PipelineConfig.model_json_schema()
        return SpecError(report(self.source, complaints(error, self._document, schema)))


def load_config(path: Path) -> LoadedConfig:
    """Return the configuration in a YAML or JSON file.

    Args:
        path: UTF-8, at most 256 KiB.

    Returns:
        The configuration, defaults filled in.

    Raises:
        SpecError: the file cannot be read, or what it says is wrong; all problems are listed, one a
            line: ``file:line: field: what; got VALUE; allowed RANGE; what to do``.
    """
    config, document = read_declared(path, PipelineConfig)
    return LoadedConfig(config, document, str(path))


def shipped_config(system: str) -> Path:
    """Return the configuration that is shipped for a system.

    Args:
        system: such as ``assistant``.

    Returns:
        Its file, in the package or in a checkout.

    >>> shipped_config("assistant").name
    'assistant.yaml'
    """
    return shipped(f"pipelines/{system}.yaml")


def problems_at(problems: Iterable[Problem]) -> ValidationError:
    """Return problems as an error that `LoadedConfig.refuse` takes.

    Args:
        problems: each at its place in the configuration.
    """
    return as_validation_error("pipeline", problems)
