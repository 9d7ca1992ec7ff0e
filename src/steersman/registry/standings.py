"""What a published version is: a candidate, released, or rolled back; signed with the targets.

The mark is an entry of the state's target, so it is signed with it, and changing it is a new
version of the targets: the snapshot, its hash and its files stay as they are. Whoever loads without
naming a version gets what is released.
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
    """Return the mark of a version; None: it was signed without one, as earlier releases did.

    A mark that this release does not know counts as a candidate's.

    Args:
        target: of its state.

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
    """Mark a version, among targets that are about to be signed.

    Args:
        target: of its state.
        standing: what it is from now on.
    """
    custom = target.custom if isinstance(target.custom, dict) else {}
    target.unrecognized_fields["custom"] = {**custom, _ENTRY: standing}


def standings_of(found: Iterable[Release]) -> dict[str, Standing]:
    """Return what each version of one decision point counts as.

    Where none of them has a mark, all were signed by an earlier release, and count as released, as
    they did then. Beside marked ones, one without a mark is a candidate.

    Args:
        found: every version of the point that is published, of all majors.
    """
    ours = list(found)
    unmarked: Standing = "candidate" if any(it.standing for it in ours) else "released"
    return {str(it.version): it.standing or unmarked for it in ours}


def offered(marks: Mapping[str, Standing], *, candidates: bool) -> set[str]:
    """Return the versions that may be loaded by whoever names none.

    Args:
        marks: of `standings_of`.
        candidates: whether those will do that are untried or on trial.

    >>> offered({"0.1.0": "released", "0.2.0": "candidate"}, candidates=False)
    {'0.1.0'}
    """
    will_do = {"released", "candidate"} if candidates else {"released"}
    return {version for version, mark in marks.items() if mark in will_do}
