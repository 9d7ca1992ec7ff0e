"""Entity links: links between passages that mention the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from steersman.retrieval.passage_links import ENTITY, Links, link_titles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.retrieval.documents.passage import Passage

# Two or more capitalised words: every sentence begins with one. Names do not begin with common
# first words of sentences.
_WORD = r"[A-Z][\w'’-]+"
_BEGINS = "The|An?|In|On|Of|At|By|For|From|With|To|As|And|But|He|She|It|Its|His|Her|They|This|That"
_NAME = re.compile(rf"\b(?!(?:{_BEGINS})\b){_WORD}(?: (?:of |the |de )?{_WORD}){{1,4}}")
_MAX_SHARED_BY = 3
_MAX_LINKS = 4


def link_entities(passages: Sequence[Passage]) -> Links:
    """Return links between passages that share a name with at most 3 occurrences.

    A name is two to five consecutive capitalised words. A passage links to at most 4 others,
    those with the rarest names first.
    """
    named_by: dict[str, list[int]] = defaultdict(list)
    for position, passage in enumerate(passages):
        for name in sorted(set(_NAME.findall(passage.text))):
            named_by[name].append(position)
    led: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for sharing in named_by.values():
        if 2 <= len(sharing) <= _MAX_SHARED_BY:
            for source in sharing:
                led[source] |= {(len(sharing), target) for target in sharing if target != source}
    return Links.of_pairs(
        len(passages),
        ((source, target, ENTITY) for source, found in led.items() for target in _rarest(found)),
    )


def link_passages(passages: Sequence[Passage]) -> Links:
    """Return title links and entity links.

    On the training questions of hotpotqa, all relevant passages are in the top ten for 73 % without
    links, 81 % with entity links, 93 % with title links and 95 % with both.
    """
    kinds = (link_titles(passages), link_entities(passages))
    return Links.of_pairs(len(passages), (pair for links in kinds for pair in links.pairs()))


def _rarest(found: set[tuple[int, int]]) -> list[int]:
    return list(dict.fromkeys(target for _, target in sorted(found)))[:_MAX_LINKS]
