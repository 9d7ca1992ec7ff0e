"""Questions of the interrogator, declared in ``questions.yaml``.

A template is a question with a vocabulary. An option of the vocabulary is put into the phrase of
the template, and the phrase is appended to the hypothesis. A template may store its answer in a
slot. Another template may need that slot: it is eligible only after the slot is filled, and its
options may depend on the value of the slot.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

from steersman.errors import ActionError
from steersman.spec.base import Declared, FormatVersion, Identifier, Problem, repeated
from steersman.spec.yaml_files import read_declared
from steersman_systems.configs import shipped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

OPTION, SLOT = "{option}", "{slot}"
PHASES = ("broad", "narrow", "detail")
MAX_OPTIONS = 64
Phase = Literal["broad", "narrow", "detail"]


@dataclass(frozen=True, slots=True)
class Template:
    """Question with its vocabulary.

    Args:
        name: Name of the question, which is an action of the decision point.
        question: Question for a person or a language model.
        phase: Phase of the investigation.
        phrase: Text that an answer appends to the hypothesis: has ``{option}``, and may have
            ``{slot}`` for the value of the needed slot.
        options: Possible answers, in any order; a mapping by the value of the needed slot if they
            depend on it; empty if only a language model can answer.
        fills: Slot that stores the answer; ``None`` for none.
        needs: Slot that must be filled before; ``None`` for none.

    >>> colour = Template("colour", "What colour?", "broad", "in {option}", ("red", "blue"))
    >>> colour.extend("A hat", "red", {})
    'A hat in red'
    """

    name: str
    question: str
    phase: Phase
    phrase: str
    options: tuple[str, ...] | Mapping[str, tuple[str, ...]]
    fills: str | None = None
    needs: str | None = None

    def vocabulary(self, slots: Mapping[str, str]) -> tuple[str, ...]:
        """Return the options for the filled slots.

        Returns:
            The options; empty if there are none for the value of its slot.
        """
        if isinstance(self.options, tuple):
            return self.options
        return self.options.get(slots.get(self.needs or "", ""), ())

    @property
    def asks(self) -> bool:
        """True if it has no options, so that only a language model can answer it."""
        return not self.options

    def extend(self, hypothesis: str, option: str, slots: Mapping[str, str]) -> str:
        """Return the hypothesis with an answer appended.

        Args:
            hypothesis: Text so far; may be empty.
        """
        held = slots.get(self.needs, "") if self.needs else ""
        said = self.phrase.replace(SLOT, held).replace(OPTION, option)
        return f"{hypothesis} {said}".strip()


@dataclass(frozen=True)
class Questions:
    """All templates, in the order of the heuristic.

    Args:
        opening: Hypothesis before the first question.
        templates: Templates with different names.

    >>> questions = load_questions()
    >>> "topic" in questions.eligible((), {}), "topic" in questions.eligible((), {"field": "money"})
    (False, True)
    """

    opening: str
    templates: tuple[Template, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the templates: the actions of the decision point."""
        return tuple(template.name for template in self.templates)

    @cached_property
    def _by_name(self) -> dict[str, Template]:
        return {template.name: template for template in self.templates}

    @cached_property
    def sha256(self) -> str:
        """Hash of the declaration; a log of other questions cannot be used."""
        meaning = [self.opening, [asdict(template) for template in self.templates]]
        return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()

    def __getitem__(self, name: str) -> Template:
        """Return the template of a name.

        Raises:
            ActionError: Unknown name.
        """
        if name not in self._by_name:
            message = f"unknown question {name!r}; allowed: {', '.join(self.names)}"
            raise ActionError(message)
        return self._by_name[name]

    def eligible(self, asked: Collection[str], slots: Mapping[str, str]) -> tuple[str, ...]:
        """Return the eligible names, in declared order."""
        return tuple(
            template.name
            for template in self.templates
            if template.name not in asked
            and (template.needs is None or template.needs in slots)
            and (template.asks or template.vocabulary(slots))
        )


def load_questions(path: Path | None = None) -> Questions:
    """Return the questions of a YAML file.

    Args:
        path: UTF-8 file, at most 256 KiB; ``None`` for the shipped one.

    Raises:
        SpecError: The file cannot be read or is invalid; lists all problems, one per line:
            ``file:line: field: what; got VALUE; allowed RANGE; what to do``.

    >>> len(load_questions().templates)
    50
    """
    declared, _ = read_declared(path or shipped("interrogator/questions.yaml"), _File)
    return Questions(declared.opening, tuple(_template(one) for one in declared.questions))


def _template(declared: _Question) -> Template:
    options = declared.options
    plain = () if options is None or isinstance(options, str) else options
    kept = declared.model_dump(exclude={"options"})
    return Template(**kept, options=plain)


# -- what a file may say --------------------------------------------------------------------------


def _options_tag(value: object) -> str:
    if isinstance(value, str):
        return "#ask"
    return "#by_slot" if isinstance(value, dict) else "#list"


Words = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
_List = Annotated[tuple[Words, ...], Field(strict=False, max_length=MAX_OPTIONS)]
_Options = Annotated[
    Annotated[_List, Tag("#list")]
    | Annotated[dict[Words, _List], Tag("#by_slot")]
    | Annotated[Literal["ask"], Tag("#ask")],
    Discriminator(_options_tag),
]


class _Question(Declared):
    name: Identifier
    question: Words
    phase: Phase
    phrase: Words
    options: _Options | None = None
    fills: Identifier | None = None
    needs: Identifier | None = None

    def _problems(self) -> Iterator[Problem]:
        yield from self._phrase_problems()
        yield from self._option_problems()
        if self.fills is not None and self.fills == self.needs:
            advice = "let another question fill it"
            yield Problem(("needs",), "needs what it fills", self.needs, "another slot", advice)

    def _phrase_problems(self) -> Iterator[Problem]:
        if self.phrase.count(OPTION) != 1:
            allowed = f"words with {OPTION} once"
            advice = f"put {OPTION} where the answer goes"
            yield Problem(("phrase",), f"no place for the answer: {OPTION}", self.phrase, allowed,
                          advice)  # fmt: skip
        if SLOT in self.phrase and self.needs is None:
            advice = "say which slot under needs, or leave it out"
            yield Problem(("phrase",), f"{SLOT} of no slot", self.phrase, "no slot", advice)

    def _option_problems(self) -> Iterator[Problem]:
        options = self.options
        if isinstance(options, str):
            return
        if not options:
            what = "a question without options"
            advice = "list some; options: ask, if only a language model is to answer it"
            yield Problem(("options",), what, options, f"1 to {MAX_OPTIONS} options", advice)
            return
        if isinstance(options, tuple):
            yield from _word_problems(options, ("options",))
            return
        if self.needs is None:
            advice = "say which slot under needs, or write one list"
            yield Problem(("options",), "options by the value of no slot", list(options),
                          "a list", advice)  # fmt: skip
        for value, listed in options.items():
            if not listed:
                advice = "list some, or remove the value"
                yield Problem(("options", value), "no options", [], "1 or more", advice)
            yield from _word_problems(listed, ("options", value))

    def answers(self) -> frozenset[str] | None:
        """Return every possible answer; None: any."""
        options = self.options
        if options is None or isinstance(options, str):
            return None
        return frozenset(options if isinstance(options, tuple) else sum(options.values(), ()))


class _File(Declared):
    format: FormatVersion
    opening: Words
    questions: Annotated[tuple[_Question, ...], Field(strict=False, min_length=1, max_length=1000)]

    def _problems(self) -> Iterator[Problem]:
        for field in ("name", "fills"):
            yield from self._repeated(field)
        fillers = {one.fills: one for one in self.questions if one.fills is not None}
        for place, one in enumerate(self.questions):
            if one.needs is not None:
                yield from _slot_problems(place, one, fillers)

    def _repeated(self, field: str) -> Iterator[Problem]:
        values = [(place, getattr(one, field)) for place, one in enumerate(self.questions)]
        given = [(place, value) for place, value in values if value is not None]
        for at, value in repeated(value for _, value in given):
            path = ("questions", given[at][0], field)
            yield Problem(path, "was there before", value, "each once", "rename or remove it")


def _slot_problems(
    place: int, one: _Question, fillers: Mapping[str, _Question]
) -> Iterator[Problem]:
    path = ("questions", place, "needs")
    filler = fillers.get(one.needs or "")
    if filler is None:
        known = ", ".join(sorted(fillers)) or "none: no question fills a slot"
        advice = "let a question fill it, or correct the name"
        yield Problem(path, "a slot that no question fills", one.needs, known, advice)
        return
    if one.fills in _chain(one, fillers):
        advice = "let one of them need nothing"
        yield Problem(path, "slots that wait for each other", one.needs, "no circle", advice)
    possible = filler.answers()
    if isinstance(one.options, dict) and possible is not None:
        for value in one.options:
            if value not in possible:
                at = ("questions", place, "options", value)
                allowed = ", ".join(sorted(possible))
                advice = f"use an option of {filler.name}"
                yield Problem(at, f"{filler.name} is never answered so", value, allowed, advice)


def _chain(one: _Question, fillers: Mapping[str, _Question]) -> set[str]:
    """Return the slots that must be filled, directly or indirectly, before this question."""
    chain: set[str] = set()
    needed = one.needs
    while needed is not None and needed not in chain:
        chain.add(needed)
        needed = fillers[needed].needs if needed in fillers else None
    return chain


def _word_problems(options: Iterable[str], path: tuple[str | int, ...]) -> Iterator[Problem]:
    counted = Counter(option.casefold() for option in options)
    for place, option in enumerate(options):
        if not option.strip():
            yield Problem((*path, place), "an empty option", option, "words", "remove it")
        elif counted[option.casefold()] > 1:
            yield Problem((*path, place), "an option twice", option, "each once", "remove one")
