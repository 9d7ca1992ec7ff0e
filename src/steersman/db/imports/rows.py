"""Conversion of log rows to decisions and events."""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from steersman.db.decisions import DecisionRow
from steersman.db.imports import values
from steersman.db.imports.logged_choice import ChoiceReader
from steersman.db.imports.mapping import field_of
from steersman.db.packed_events import EventRow
from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import encode
from steersman.privacy.declared_scrub import check_scrubbers, scrubbing_of
from steersman.wire import canonical_hash

if TYPE_CHECKING:
    from datetime import datetime

    from steersman.db.imports.mapping import LogMapping
    from steersman.db.points import PointRow

SNAPSHOT = "imported"
_AHEAD = timedelta(days=1)
_LONGEST_NAME = 200


class ConvertedRow(NamedTuple):
    """Converted row.

    Attributes:
        number: row number in the file.
        decision: decision row.
        event: event row; None without outcomes.
    """

    number: int
    decision: DecisionRow
    event: EventRow | None


class Converter:
    """Converts rows of one log to decisions of one point.

    Ids are deterministic on any machine: from the id field, or from the content and the number of
    equal rows before it.

    Args:
        point: decision point name.
        mapping: mapping of the log.
        now: import time.
        secret: the service's secret, for equal hashes of personal data.

    Raises:
        InputError: a scrubber is not installed, or a needed secret is missing.
    """

    def __init__(
        self, point: PointRow, mapping: LogMapping, now: datetime, secret: bytes = b""
    ) -> None:
        self._point, self._mapping, self._now = point, mapping, now
        check_scrubbers(point.spec)
        self._scrubbing, self._secret = scrubbing_of(point.spec), secret
        if self._scrubbing is not None and not secret:
            message = (
                f"{point.skill}/{point.point} removes personal data from its texts, which "
                "needs the service's secret; pass import_log the result of load_secret"
            )
            raise InputError(message)
        self._features = FeatureMap(point.spec.context)
        self._space = f"{point.tenant}/{point.skill}/{point.point}/{mapping.source}/"
        self._seen: dict[bytes, int] = {}
        self._context = {name: field_of(value) for name, value in mapping.context.items()}
        self._outcomes = {name: field_of(value) for name, value in mapping.outcomes.items()}
        self._drawing = ChoiceReader(point.spec.actions, mapping)

    def wanted(self, row: dict[str, Any]) -> bool:
        """Return whether the mapping includes a row."""
        found = ((values.lookup(row, f), allowed) for f, allowed in self._mapping.where.items())
        return all(v is not None and values.as_text(v) in allowed for v, allowed in found)

    def convert(self, number: int, row: dict[str, Any]) -> ConvertedRow:
        """Return the converted row.

        Raises:
            InputError: a value is missing, unknown or invalid.
        """
        name = self._name(row)
        at = values.as_moment(
            values.lookup(row, self._mapping.time.field), self._mapping.time, self._now + _AHEAD
        )
        decision = self._decision(row, name, at)
        return ConvertedRow(number, decision, self._event(row, decision))

    def _name(self, row: dict[str, Any]) -> bytes:
        """Return 16 bytes that identify a row within its log."""
        try:
            encoded = msgspec.json.encode(row, order="sorted")
        except (TypeError, ValueError, UnicodeError, msgspec.EncodeError) as error:
            message = f"cannot write the row as JSON: {error}; leave such fields out"
            raise InputError(message) from None
        if b"\\u0000" in encoded:
            raise InputError("a text contains U+0000, which cannot be stored; remove it")
        if self._mapping.id is None:
            digest = blake2b(encoded, digest_size=16).digest()
            self._seen[digest] = before = self._seen.get(digest, -1) + 1
            return blake2b(digest + before.to_bytes(8), digest_size=16).digest()
        given = values.lookup(row, self._mapping.id)
        if given is None:
            message = f"the id field {self._mapping.id!r} is absent or empty; every row needs an id"
            raise InputError(message)
        # Any bytes are a valid id, such as those of a UUID.
        name = str(given) if isinstance(given, bytes) else values.as_text(given)
        return blake2b(name.encode(), digest_size=16).digest()

    def _decision(self, row: dict[str, Any], name: bytes, at: datetime) -> DecisionRow:
        spec, mapping = self._point.spec, self._mapping
        read = self._read_context(row)
        context = self._scrubbed(read)
        action, drawn = self._drawing.drawn(row)
        x, key = encode(spec, self._features, context)
        features = None
        if mapping.features is not None:
            x, features = self._drawing.candidates(row, action, drawn.eligible)
        unit, episode = self._text(row, "unit"), self._text(row, "episode")
        content = (read, action, drawn, features, unit, episode)
        return DecisionRow(
            tenant=self._point.tenant,
            id=self._id(name, at),
            skill=self._point.skill,
            point=self._point.point,
            episode=episode,
            unit=unit,
            snapshot=SNAPSHOT,
            spec_hash=self._point.spec_hash,
            feature_hash=self._point.feature_hash,
            context=context,
            eligible=drawn.eligible,
            distribution=drawn.distribution,
            action=action,
            p=drawn.p,
            p_kind="none" if drawn.p is None else "imported",
            x=None if x is None else x.tolist(),
            key=key,
            features=features,
            weight=mapping.trust,
            body_hash=canonical_hash(content),
            at=at,
            window_ends=at + timedelta(seconds=spec.reward.window_s),
        )

    def _id(self, name: bytes, at: datetime) -> UUID:
        """Return a UUIDv7 from the decision's time and the row's name."""
        bits = int.from_bytes(blake2b(self._space.encode() + name, digest_size=10).digest())
        high, low = bits >> 62 & 0xFFF, bits & ((1 << 62) - 1)
        milliseconds = int(at.timestamp() * 1000)
        return UUID(int=(milliseconds << 80) | (7 << 76) | (high << 64) | (2 << 62) | low)

    def _read_context(self, row: dict[str, Any]) -> dict[str, Any]:
        declared = self._point.spec.context.fields
        read = {
            name: values.as_context(name, declared[name], values.valued(row, value))
            for name, value in self._context.items()
        }
        return {name: value for name, value in read.items() if value is not None}

    def _scrubbed(self, context: dict[str, Any]) -> dict[str, Any]:
        if self._scrubbing is None:
            return context
        return self._scrubbing.context(context, self._secret, self._point.tenant)[0]

    def _text(self, row: dict[str, Any], name: str) -> str | None:
        value = getattr(self._mapping, name)
        found = None if value is None else values.valued(row, field_of(value))
        text = None if found is None else values.as_text(found)
        if text is not None and len(text) > _LONGEST_NAME:
            raise InputError(f"the {name} has {len(text)} characters; allowed are {_LONGEST_NAME}")
        return text

    def _event(self, row: dict[str, Any], decision: DecisionRow) -> EventRow | None:
        found = {name: values.valued(row, value) for name, value in self._outcomes.items()}
        outcomes = {
            name: values.as_float(f"outcome {name!r}", value)
            for name, value in found.items()
            if value is not None
        }
        if not outcomes:
            return None
        at, time = decision.at, self._mapping.outcome_time
        if time is not None:
            at = values.as_moment(values.lookup(row, time.field), time, self._now + _AHEAD)
        return EventRow(
            tenant=decision.tenant,
            id=f"import-{decision.id.hex}",
            decision=decision.id,
            episode=None,
            type="task_result",
            schema_version=1,
            at=at,
            received_at=self._now,
            outcomes=outcomes,
            action_taken=None,
            body={"imported_from": self._mapping.source},
            body_hash=canonical_hash([outcomes, at.isoformat()]),
            traceparent=None,
        )
