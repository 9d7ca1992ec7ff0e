"""Comparison of a judging model with human verdicts, for `steersman evidence judge`."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.providers.judges.agreement import agreement
from steersman.providers.judges.pairwise import PairwiseJudge, abstentions
from steersman_systems.evidence_selection.commands.progress import progress_bar
from steersman_systems.evidence_selection.commands.run import asked_model
from steersman_systems.evidence_selection.judged_pairs import beside_people, load_human_pairs
from steersman_systems.evidence_selection.reward_model import Preferred, distilled_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from steersman.providers.judges.agreement import Agreement
    from steersman.providers.judges.pairwise import Preference
    from steersman_systems.evidence_selection.judged_pairs import HumanPair

_FEWEST = 40
"""Minimum number of verdicts to distil a reward model."""
_NUMBER = {"first": 1, "second": 2}


def judged(
    *, quiet: bool, data: Path, name: str, pairs: int, seed: int, **asked: Any
) -> dict[str, Any]:
    """Return the agreement of a model with human verdicts on `pairs` random pairs.

    `asked` holds the options of the model, see `asked_model`.

    Raises:
        DataError: the verdicts are absent or invalid, or an extra is missing.
        InputError: no model is named.
    """
    every = load_human_pairs(data / name)
    order = np.random.default_rng([seed, 22]).permutation(len(every))[:pairs]
    chosen = [every[place] for place in np.sort(order)]
    with ExitStack() as stack, progress_bar(quiet=quiet) as bar:
        model = asked_model(stack, asked, told=True)
        if model is None:
            raise InputError(
                "--answers none names no judging model; use local or the URL of a server"
            )
        judge = PairwiseJudge(model)
        task = bar.add_task("judging in both orders", total=len(chosen))
        said = []
        for one in chosen:
            said.append(judge(one.pair))
            bar.advance(task)
    found = agreement(beside_people(chosen, said))
    reasons = {f"abstains: {why}": count for why, count in abstentions(said).items()}
    return {"judge": model.name, **_told(found), **reasons, **_distilled(chosen, said)}


def _told(found: Agreement) -> dict[str, Any]:
    return {
        "pairs": found.pairs,
        "judged": found.judged,
        "agrees_with_people": _shown(found.agree, *found.agree_interval),
        "kappa": _shown(found.kappa),
        "same_in_both_orders": _shown(found.consistent),
        "first_shown_beyond_half": _shown(found.first_shown - 0.5, *found.position_bias),
        "longer_taken": _shown(found.longer_judge),
        "longer_taken_by_people": _shown(found.longer_human),
        "longer_beyond_people": _shown(found.longer_judge - found.longer_human, *found.length_bias),
    }


def _distilled(chosen: Sequence[HumanPair], said: Sequence[Preference]) -> dict[str, Any]:
    decided = [(one, told) for one, told in zip(chosen, said, strict=True) if one.human]
    taught = [
        Preferred(one.pair, _NUMBER[told.winner]) if told.winner in _NUMBER else None
        for one, told in decided
    ]
    if sum(one is not None for one in taught) < _FEWEST:
        return {"reward_model": f"not distilled: fewer than {_FEWEST} verdicts"}
    human = [Preferred(one.pair, one.human) for one, _ in decided]
    return {"reward_model": str(distilled_report(taught, human))}


def _shown(value: float, *interval: float) -> str | None:
    if math.isnan(value):
        return None
    return f"{value:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")
