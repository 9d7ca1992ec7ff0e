"""The language gate: finds phrases that the house style bans, with a replacement for each.

Reads the sources (strings, docstrings, comments) and all texts, line breaks included. A line may
keep a phrase with a comment at its end, ``plain: ok - reason``, or by an entry of `DEFENDED`.

``python -m tools.plain_language [FILE ...]`` checks the files given, or all.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "systems", "sdk", "lab", "benchmarks", "tools", "configs", "deploy", "docs")
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "examples")
KINDS = frozenset({".py", ".md", ".json", ".yaml", ".yml", ".toml", ""})

# Six phrases that `tools.sizes` counts, then the others.
COUNTED = ("is no", "are no", "whoever", "is told", "anew", "nobody")
BANNED = {
    "is no": "is not a; does not exist; without",
    "are no": "are not; do not exist; without",
    "whoever": "anyone who; a user that; name the subject",
    "is told": "receives; is reported; knows",
    "anew": "again",
    "nobody": "no user; no process; unknown",
    "are told": "receive; are reported; know",
    "was told": "received; was reported",
    "told otherwise": "by default",
    "no such thing": "not found",
    "what is to be": "name the noun",
    "kept waiting": "blocked",
    "the keeper": "the janitor",
    "what serves": "the live policy; the live version",
    "beside others": "compared with others",
    "say no": "refuse",
    "what came": "name the noun: events, answers, rewards",
    "of its own{end}": "separate; its",
    "of their own{end}": "separate; their",
}
# The idiom ends a phrase; "of its own fields" is plain.
_END = r"(?=\W*$|[.,;:)\"]|\s+(?:and|for|in|of|that|to|which)\b)"
# Between two words: spaces, a line break with its comment sign, or the border of two strings.
_GAP = r"(?:\s|[#>\"']|\bf[\"'])+"
_KEPT = re.compile(r"plain: ok - \S")

# (path, phrase): reason. Names and quotations, where the phrase itself is meant.
DEFENDED = {
    ("src/steersman/platform/postgres/embedded.py", "nobody"): "name of a Unix user",
    ("src/steersman/providers/detectors/answer_review.py", "nobody"): "an answer under review",
    ("docs/how-to/judge-answers.md", "nobody"): "an answer under review",
    ("src/steersman/stats/arguments.py", "is no"): "a refused value, 'no'",
    ("configs/interrogator/questions.yaml", "whoever"): "a question about the speaker",
    ("tools/plain_language.py", ""): "the list itself",
}


@dataclass(frozen=True)
class Finding:
    """A banned phrase at a place.

    Args:
        path: File, relative to the root.
        line: Line number, from 1.
        phrase: Banned phrase.
        defended: Whether it may stay.
    """

    path: str
    line: int
    phrase: str
    defended: bool


def main(arguments: list[str]) -> int:
    """Print every phrase that may not stay; return the exit status."""
    files = [Path(name).resolve() for name in arguments] or list(files_to_read())
    findings = [finding for file in files for finding in find(file)]
    for finding in findings:
        if not finding.defended:
            place = f"{finding.path}:{finding.line}"
            instead = next(use for phrase, use in BANNED.items() if _name(phrase) == finding.phrase)
            print(f"PLAIN {place}: {finding.phrase!r}; write: {instead}")
    kept = sum(finding.defended for finding in findings)
    print(f"plain language: {len(findings) - kept} banned phrases, {kept} defended")
    return 1 if kept < len(findings) else 0


def files_to_read() -> Iterator[Path]:
    """Yield the files with text for readers."""
    for name in (*FOLDERS, *OTHERS):
        place = ROOT / name
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            hidden = any(part.startswith((".", "__pycache__")) for part in file.parts[-4:])
            if file.is_file() and file.suffix in KINDS and not hidden:
                yield file


def find(file: Path) -> Iterator[Finding]:
    """Yield the banned phrases of a file, the defended ones too."""
    text = file.read_text(encoding="utf-8", errors="replace")
    path = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)
    lines = text.splitlines()
    for match in _PATTERN.finditer(text):
        number = text.count("\n", 0, match.start())
        phrase = " ".join(re.findall(r"\w+", match[0].lower().replace('f"', '"')))
        defended = (
            (path, phrase) in DEFENDED
            or (path, "") in DEFENDED
            or _KEPT.search(lines[text.count("\n", 0, match.end())]) is not None
        )
        yield Finding(path, number + 1, phrase, defended)


def _name(phrase: str) -> str:
    return phrase.removesuffix("{end}")


def _pattern() -> re.Pattern[str]:
    found = []
    for phrase in BANNED:
        words = _GAP.join(_name(phrase).split())
        found.append(words + (_END if phrase.endswith("{end}") else ""))
    return re.compile(rf"\b(?:{'|'.join(found)})\b", re.IGNORECASE | re.MULTILINE)


_PATTERN = _pattern()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
