"""Saved selectors: a scorer with its features and limits.

Trees read columns by number. With other features, without vectors, or with an untrained stop action
they return meaningless scores. So the file states the training setup, and loading checks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from steersman.errors import DataError, InputError, StateError
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer, scorer_from_state, scorer_state
from steersman.policies.tree_scorer import TreeScorer
from steersman_systems.evidence_selection.environment import Limits
from steersman_systems.evidence_selection.features import FEATURES

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.policies.scorers import Scorer

_FIELD = "selector"


class SelectorSetup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Training setup of a selector.

    Args:
        embedder: name of the embedder; "" for words only.
        picks: maximum passages per selection, 1 to 8.
        tokens: maximum tokens per selection.
        added: maximum candidates per expansion.
        may_stop: whether it learned to stop.
        form: query form.
        set: training set.
        features: column names in order.

    >>> SelectorSetup("", 5, 4000, 20, False, "last", "hotpotqa").limits().may_stop
    False
    """

    embedder: str
    picks: int
    tokens: int
    added: int
    may_stop: bool
    form: str
    set: str
    features: tuple[str, ...] = FEATURES

    def limits(self, *, picks: int | None = None, may_stop: bool | None = None) -> Limits:
        """Return the limits of its selections.

        Args:
            picks: fewer than in training; None: as in training.
            may_stop: whether it may stop; None: as in training.

        Raises:
            InputError: the limits exceed those of training.
        """
        if picks is not None and picks > self.picks:
            raise InputError(f"picks is {picks}, and the selector was trained for {self.picks}; "
                             "select no more, or train another")  # fmt: skip
        if may_stop and not self.may_stop:
            raise InputError("the selector was not trained to stop; train it with --may-stop")
        return Limits(
            picks=self.picks if picks is None else picks, tokens=self.tokens, expanding="always",
            may_stop=self.may_stop if may_stop is None else may_stop, added=self.added,
        )  # fmt: skip

    def check_embedder(self, name: str) -> None:
        """Check that the embedder is that of training.

        Raises:
            InputError: the embedder is different.
        """
        if name != self.embedder:
            had, has = (f"{one!r}" if one else "words alone" for one in (self.embedder, name))
            hint = "give --words" if not self.embedder else "use that one, or train another"
            raise InputError(f"the selector was trained with {had}, not {has}; {hint}")


def kept(scorer: Scorer, made_for: SelectorSetup) -> bytes:
    """Return a selector as file content: arrays and a header, no code.

    Raises:
        InputError: the scorer has an unsupported type.

    >>> stump = TreeScorer.of_stumps(len(FEATURES), [(0, 0.5, -1.0, 2.0)])
    >>> told = SelectorSetup("", 5, 4000, 20, False, "last", "hotpotqa")
    >>> read(kept(stump, told))[1] == told
    True
    """
    told = msgspec.json.encode(made_for, order="deterministic")
    return pack_state({**scorer_state(scorer), _FIELD: np.frombuffer(told, np.uint8).copy()})


def read(content: bytes) -> tuple[Scorer, SelectorSetup]:
    """Return a selector and its training setup.

    Raises:
        StateError: the content is not a selector, lacks its setup, or has other features.
    """
    state = dict(unpack_state(content))
    told = state.pop(_FIELD, None)
    if told is None:
        raise StateError("the file has no training setup; train the selector again")
    try:
        made_for = msgspec.json.decode(told.tobytes(), type=SelectorSetup)
    except msgspec.DecodeError as wrong:
        raise StateError(f"the file's {_FIELD!r} is damaged: {wrong}; train it again") from wrong
    scorer = scorer_from_state(state)
    parts = scorer.parts if isinstance(scorer, SummedScorer) else (scorer,)
    fits = all(
        isinstance(part, TreeScorer | NetworkScorer) and part.columns == len(FEATURES)
        for part in parts
    )
    if made_for.features != tuple(FEATURES) or not fits:
        odd = sorted(set(made_for.features) ^ set(FEATURES)) or ["their order"]
        raise StateError(
            f"the selector was trained for other features ({', '.join(odd)}); train it again"
        )
    return scorer, made_for


def read_file(file: Path) -> tuple[Scorer, SelectorSetup]:
    """Return `read` of a file.

    Raises:
        DataError: the file cannot be read.
        StateError: as `read`.
    """
    try:
        return read(file.read_bytes())
    except OSError as error:
        message = f"{file} cannot be read: {error}; write it with `steersman evidence train`"
        raise DataError(message) from error
