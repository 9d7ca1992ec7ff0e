"""Release status of a version: candidate, released or rolled back; signed with the targets.

The status is an entry of the state's target. A change creates a new version of the targets; the
snapshot files stay unchanged. Consumers load released versions by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuf.api.metadata import TargetFile

    from steersman.registry.chain import Release

Standing = Literal["candidate", "released", "rolled_back"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
_ENTRY = "standing"


def signed_standing(target: TargetFile) -> Standing | None:
    """Return the status of a version; None: signed without one, by an earlier release.

    An unknown status counts as candidate.

    >>> from tuf.api.metadata import TargetFile
    >>> target = TargetFile(1, {"sha256": "0" * 64}, "a/b/0.1.0/state.zst")
    >>> signed_standing(target) is None
    True
    >>> put_standing(target, "released")
    >>> signed_standing(target)
    'released'
    """
    custom = target.custom if isinstance(target.custom, dict) else {}
    if _ENTRY not in custom:
        return None
    return next((one for one in STANDINGS if one == custom[_ENTRY]), "candidate")


def put_standing(target: TargetFile, standing: Standing) -> None:
    """Set the status of a version in targets that will be signed."""
    custom = target.custom if isinstance(target.custom, dict) else {}
    target.unrecognized_fields["custom"] = {**custom, _ENTRY: standing}


def standings_of(found: Iterable[Release]) -> dict[str, Standing]:
    """Return the effective status of each version of one decision point.

    If no version has a status, an earlier release signed them all, and they count as released.
    Otherwise a version without a status is a candidate.
    """
    ours = list(found)
    unmarked: Standing = "candidate" if any(it.standing for it in ours) else "released"
    return {str(it.version): it.standing or unmarked for it in ours}


def offered(marks: Mapping[str, Standing], *, candidates: bool) -> set[str]:
    """Return the versions that a consumer may load without naming one.

    >>> offered({"0.1.0": "released", "0.2.0": "candidate"}, candidates=False)
    {'0.1.0'}
    """
    will_do = {"released", "candidate"} if candidates else {"released"}
    return {version for version, mark in marks.items() if mark in will_do}
