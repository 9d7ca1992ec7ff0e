"""Candidates of a request, and the progress of a selection.

A request names its initial candidates and the candidates that each pick adds. So the set grows
during one decision, and every step depends only on the request and the earlier picks. A scorer sees
the features of a candidate, and columns that describe the state of the selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.sequence import STOP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STANDING = (
    *("hop", "linked", "linked_last", "novelty", "picked", "is_pick", "is_stop", "stop_after"),
)
"""Columns with the state of a selection, of every sequence; `steersman.spec.actions` has the
same names, and says what each is."""


class SequenceForm(NamedTuple):
    """Declared form of a sequence decision point.

    Attributes:
        features: names of the candidate features, in order.
        vector: length of the candidate vector after the features.
        max_steps: largest number of picks, ≥ 1.
        stop: whether a selection may stop before ``max_steps``.

    >>> SequenceForm(("score",), 0, 3, True).columns[:2]
    ('score', 'hop')
    """

    features: tuple[str, ...]
    vector: int
    max_steps: int
    stop: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a scorer reads."""
        return (*self.features, *STANDING)


def offered_names(start: Sequence[str], links: Mapping[str, Sequence[str]] | None) -> list[str]:
    """Return all candidates of a request in the order of its rows.

    Args:
        start: initial candidates.
        links: for a candidate, the candidates that picking it adds.

    Returns:
        `start`, then the candidates linked from it, and so on. The order does not depend on the
        order of the mapping.

    Raises:
        InputError: duplicate or invalid name, the name of stop, links that are not a mapping, or
            links of an unknown candidate.

    >>> offered_names(["a", "b"], {"c": ["d"], "b": ["c", "a"]})
    ['a', 'b', 'c', 'd']
    """
    return _names(inputs.texts("candidates", start), _read(links))


def _read(links: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
    if links is None:
        return {}
    inputs.kind("links", links, Mapping, "a mapping from a name to names")
    return {name: inputs.texts(f"links of {brief(name)}", to) for name, to in links.items()}


def _names(start: list[str], links: dict[str, list[str]]) -> list[str]:
    found = dict.fromkeys(start)
    if len(found) < len(start):
        twice = next(name for name, count in Counter(start).items() if count > 1)
        raise InputError(f"duplicate candidate {twice!r:.80}; name each candidate once")
    names = list(found)
    for name in names if links else ():  # which grows meanwhile
        fresh = [other for other in links.get(name, ()) if other not in found]
        found.update(dict.fromkeys(fresh))
        names += dict.fromkeys(fresh)
    unknown = [name for name in links if name not in found]
    if unknown:
        raise InputError(
            f"links has {brief(unknown[0])}, which is not a candidate or a linked candidate; "
            "remove it"
        )
    if STOP in found:
        raise InputError(f"{STOP!r} is reserved for the end of a selection; rename the candidate")
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """Candidates of one request.

    Args:
        names: names of all n candidates, in the order of `offered_names`.
        rows: (n, features + vector) float64, finite.
        start: number of initial candidates, ≥ 1.
        leads: n tuples of indices: the candidates that each pick adds.
    """

    names: tuple[str, ...]
    rows: Floats
    start: int
    leads: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, start: Sequence[str], links: Mapping[str, Sequence[str]] | None, rows: Floats
    ) -> Offered:
        """Return the candidates of a request.

        Args:
            start: names of the initial candidates.
            links: for a candidate, the candidates that picking it adds. None: no links.
            rows: (n, d) features of each candidate, in the order of `offered_names`; copied.

        Raises:
            InputError: no candidate, names or rows that do not fit, or rows that are not numbers.

        >>> Offered.of(["a"], {"a": ["b"]}, np.zeros((2, 1))).leads
        ((1,), ())
        """
        first, given, rows = inputs.texts("candidates", start), _read(links), _numbers(rows)
        names = _names(first, given)
        if not names or rows.ndim != 2 or len(rows) != len(names):
            raise InputError(
                f"rows have shape {rows.shape} for {len(names)} candidates; allowed: at least "
                "one candidate, and one row per candidate"
            )
        place = {name: number for number, name in enumerate(names)}
        leads = tuple(
            tuple(place[other] for other in dict.fromkeys(given.get(name, ()))) for name in names
        )
        return cls(tuple(names), rows, len(first), leads)


class Progress:
    """Mutable state of a selection while candidates are picked.

    Args:
        offered: candidates of the request.
        form: declared form of the sequence.

    Raises:
        InputError: wrong number of columns, or not an `Offered`.

    >>> offered = Offered.of(["a", "b"], {"b": ["c"]}, np.array([[0.1], [0.9], [0.5]]))
    >>> begun = Progress(offered, SequenceForm(("score",), 0, 2, True))
    >>> begun.take(1)
    >>> begun.places.tolist(), begun.names
    ([0, 2], ['a', 'c', 'stop'])
    >>> begun.rows[:, :4].tolist()  # score, hop, linked, linked_last
    [[0.1, 0.0, 0.0, 0.0], [0.5, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, offered: Offered, form: SequenceForm) -> None:
        inputs.kind("offered", offered, Offered, "the result of Offered.of")
        count, own = len(offered.names), len(form.features)
        if offered.rows.shape[1] != own + form.vector:
            raise InputError(
                f"candidates have {offered.rows.shape[1]} numbers each; expected {own} "
                f"features and a vector of {form.vector}"
            )
        self.offered, self.form = offered, form
        self.picked: list[int] = []
        self.stopped = False
        self._open = np.zeros(count, np.bool_)
        self._open[: offered.start] = True
        self._seen = self._open.copy()
        self._matrix = np.zeros((count + 1, own + len(STANDING)))
        self._matrix[:count, :own] = offered.rows[:, :own]
        self._column = dict(zip(STANDING, self._matrix[:, own:].T, strict=True))
        self._column["novelty"][:count] = self._column["is_pick"][:count] = 1.0
        self._column["is_stop"][count] = 1.0
        self._unit = _unit(offered.rows[:, own:]) if form.vector else None

    @property
    def ended(self) -> bool:
        """Whether the selection has ended."""
        return self.stopped or len(self.picked) >= self.form.max_steps or not self._open.any()

    @property
    def places(self) -> NDArray[np.intp]:
        """Indices of the candidates that can be picked now."""
        return np.flatnonzero(self._open)

    @property
    def names(self) -> list[str]:
        """Names of all possible actions now: candidates, then stop if allowed."""
        own = [self.offered.names[place] for place in self.places.tolist()]
        return [*own, STOP] if self.form.stop else own

    @property
    def rows(self) -> Floats:
        """(k, columns) columns of each of `names`."""
        places = self.places
        return self._matrix[np.append(places, len(self._open)) if self.form.stop else places]

    def place(self, action: str) -> int:
        """Return the index of an action in `names`.

        Args:
            action: name of a candidate, or stop.

        Raises:
            ActionError: the action is not possible now.
        """
        names = [] if self.ended else self.names
        if action not in names:
            raise ActionError(
                f"step {len(self.picked) + 1} cannot be {action!r:.80}; allowed: {names[:5]!r:.200}"
            )
        return names.index(action)

    def take(self, place: int) -> None:
        """Pick a candidate or stop.

        Args:
            place: index in `names`.
        """
        places = self.places
        if place >= len(places):
            self.stopped = True
            return
        one = int(places[place])
        targets = list(self.offered.leads[one])
        fresh = [other for other in targets if not self._seen[other]]
        column, count = self._column, len(self._open)
        self.picked.append(one)
        self._open[one] = False
        self._open[fresh] = self._seen[fresh] = True
        column["hop"][fresh] = column["hop"][one] + 1.0
        column["linked"][targets] += 1.0
        column["linked_last"][:] = 0.0
        column["linked_last"][targets] = 1.0
        column["picked"][:count] += 1.0
        column["stop_after"][count] += 1.0
        if self._unit is not None:
            new = 1.0 - self._unit @ self._unit[one]
            np.minimum(column["novelty"][:count], new, out=column["novelty"][:count])


def _numbers(rows: object) -> Floats:
    try:
        found = np.asarray(rows)
        if found.dtype.kind in "biuf":
            return np.array(found, dtype=np.float64, order="C")
    except (TypeError, ValueError):  # rows of other lengths
        pass
    raise InputError(f"the candidates' rows must be numbers, with equal lengths; got {brief(rows)}")


def _unit(vectors: Floats) -> Floats:
    """Return vectors of length 1; a vector of zeros stays one, and is like nothing."""
    # By powers of two, which change no digit, to where squares neither vanish nor overflow.
    _, exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0.0))
    scaled = np.ldexp(vectors, -exponents[:, None])
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    found: Floats = scaled / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    return found
