"""Number formats of ``steersman monitor``: short, similar width, a dash for unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE = "–"
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def span(seconds: float | None) -> str:
    """Return a duration in its largest unit.

    >>> [span(s) for s in (None, 0.04, 3.2, 59.0, 90.0, 7200.0, 200_000.0)]
    ['–', '0.0 s', '3.2 s', '59 s', '1 min', '2 h', '2 d']
    """
    if seconds is None:
        return NONE
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def rate(counts: Sequence[int], seconds: float) -> str:
    """Return a rate since the first event.

    Args:
        seconds: total length of the buckets, above 0.

    >>> rate([3600, 3600], 3600.0), rate([0, 0, 0, 45], 3600.0), rate([], 3600.0), rate([2], 3600.0)
    ('2.0/s', '3.0/min', '0', '2/h')
    """
    begun = next((place for place, count in enumerate(counts) if count), len(counts))
    total = sum(counts)
    if not total:
        return "0"
    each_s = total / (seconds * (len(counts) - begun) / len(counts))
    for length, unit in ((1.0, "s"), (60.0, "min")):
        each = each_s * length
        if each >= 1:
            return f"{each:.1f}/{unit}" if each < 100 else f"{each:,.0f}/{unit}"
    return f"{each_s * 3600:.0f}/h"


def share(value: float | None) -> str:
    """Return a share, 0 to 1, as a percentage.

    >>> [share(value) for value in (None, 0.0, 0.0042, 0.94123, 1.0)]
    ['–', '0 %', '0.4 %', '94.1 %', '100 %']
    """
    if value is None:
        return NONE
    return f"{100 * value:.0f} %" if value in {0, 1} else f"{100 * value:.1f} %"


def reward(value: float | None) -> str:
    """Return a number between 0 and 1.

    >>> reward(0.81234), reward(None), reward(-0.02)
    ('.812', '–', '-.020')
    """
    if value is None:
        return NONE
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def signed(value: float) -> str:
    """Return a difference between -1 and 1 with its sign.

    >>> signed(0.012), signed(-0.05), signed(0.0)
    ('+.012', '-.050', '+.000')
    """
    return f"{value:+.3f}".replace("0.", ".", 1)


def milliseconds(value: float | None) -> str:
    """Return a latency.

    >>> [milliseconds(value) for value in (None, 3.14, 420.4, 12_000.0)]
    ['–', '3.1 ms', '420 ms', '12.0 s']
    """
    if value is None:
        return NONE
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def money(value: float | None) -> str:
    """Return the cost of 1,000 decisions.

    Args:
        value: USD per decision.

    >>> money(0.00123), money(0.25), money(None)
    ('$1.23', '$250', '–')
    """
    if value is None:
        return NONE
    return f"${1000 * value:.2f}" if value < 0.1 else f"${1000 * value:,.0f}"


def spark(values: Sequence[float | None], width: int, *, style: str) -> Text:
    """Return values as a line of blocks, newest last.

    Args:
        values: oldest first, None: unknown; their number is a multiple of ``width``.

    >>> spark([1, 3, None, None, 0, 8], 3, style="cyan").plain
    '▄ █'
    """
    each = len(values) // width
    groups = [values[start : start + each] for start in range(0, each * width, each)]
    known = [[value for value in group if value is not None] for group in groups]
    means = [sum(group) / len(group) if group else None for group in known]
    highest = max((mean for mean in means if mean is not None), default=0.0)
    line = Text()
    for mean in means:
        if mean is None:
            line.append(" ")
        elif mean <= 0 or highest <= 0:
            line.append(_BLOCKS[0], style="dim")
        else:
            place = min(len(_BLOCKS) - 1, int(mean / highest * (len(_BLOCKS) - 0.001)))
            line.append(_BLOCKS[place], style=style)
    return line


def interval(low: float, high: float, margin: float, width: int, *, style: str) -> Text:
    """Return an interval as a line around zero, with the margin marked.

    Args:
        margin: where the candidate is too bad, on its side of zero; 0: not marked.

    >>> interval(0.0, 1.0, -0.5, 21, style="green").plain
    '     ╎    ├────●───┤ '
    """
    reach = 1.1 * max(abs(low), abs(high), abs(margin), 1e-9)
    middle = width // 2

    def column(value: float) -> int:
        return middle + round(value / reach * middle)

    cells = [" "] * width
    if margin:
        cells[column(margin)] = "╎"
    cells[middle] = "┊"
    left, right = column(low), column(high)
    for place in range(left, right + 1):
        cells[place] = "─"
    cells[left], cells[right] = "├", "┤"
    cells[column((low + high) / 2)] = "●"
    line = Text("".join(cells), style="dim")
    line.stylize(style, left, right + 1)
    return line
