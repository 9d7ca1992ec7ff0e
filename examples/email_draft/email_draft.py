"""Drafts an e-mail, lets a person edit it, sends it, and reports the outcome to Steersman.

The tone of the draft is decided by the service (`draft.yaml`); the texts are templates, no language
model is needed. What is sent goes into a folder as an .eml file, so nothing leaves this machine.
"""
# ruff: noqa: INP001 (a script, no package)

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from steersman.client import Client, ClientError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.client import Decision

Kind = Literal["reminder", "apology", "thanks", "request"]
Recipient = Literal["colleague", "customer", "boss"]
OPENINGS = {"concise": "$name,", "friendly": "Hi $name,", "formal": "Dear $name,"}
BODIES = {
    "concise": {
        "reminder": "a reminder: $notes.",
        "apology": "sorry: $notes.",
        "thanks": "thanks: $notes.",
        "request": "please: $notes.",
    },
    "friendly": {
        "reminder": "just a little nudge about this: $notes. No rush, whenever it suits you!",
        "apology": "I am really sorry: $notes. I hope it did not spoil your day!",
        "thanks": "thank you so much! $notes. It made my day.",
        "request": "could you do me a favour? $notes. You would help me a lot!",
    },
    "formal": {
        "reminder": "I would like to draw your attention to the following: $notes.",
        "apology": "please accept my apologies: $notes.",
        "thanks": "I would like to express my gratitude: $notes.",
        "request": "I would be grateful for your help in this matter: $notes.",
    },
}
CLOSINGS = {"concise": "$me", "friendly": "Cheers,\n$me", "formal": "Yours sincerely,\n$me"}


@dataclass(frozen=True)
class Task:
    """One e-mail to write.

    Attributes:
        to: the address.
        kind: reminder, apology, thanks or request.
        recipient: colleague, customer or boss.
        notes: what it is to say.
        edit: for scripts: (old, new) pairs, replaced where they occur.
        send: for scripts: whether it is sent in the end.
    """

    to: str
    kind: Kind
    recipient: Recipient
    notes: str
    edit: tuple[tuple[str, str], ...] = ()
    send: bool = True

    @property
    def name(self) -> str:
        """How the person is addressed."""
        return self.to.partition("@")[0].partition(".")[0].capitalize()


@dataclass(frozen=True)
class Verdict:
    """What the person made of a draft.

    Attributes:
        text: as it is now.
        send: whether it is to be sent.
    """

    text: str
    send: bool


def compose(task: Task, tone: str, me: str) -> str:
    """Return the draft in a tone.

    >>> task = Task("ann.lee@example.com", "thanks", "colleague", "the slides were great")
    >>> print(compose(task, "concise", "Kim"))
    Ann,
    <BLANKLINE>
    thanks: the slides were great.
    <BLANKLINE>
    Kim
    """
    parts = (OPENINGS[tone], BODIES[tone][task.kind], CLOSINGS[tone])
    values = {"name": task.name, "notes": task.notes.rstrip("."), "me": me}
    return "\n\n".join(Template(part).substitute(values) for part in parts)


def similarity(before: str, after: str) -> float:
    """Return how much of a text was kept: 1 minus the edit distance over the longer length.

    >>> similarity("Hi Ann", "Hi Ann"), similarity("abcd", "abxd"), similarity("ab", "")
    (1.0, 0.75, 0.0)
    """
    row = list(range(len(after) + 1))
    for i, a in enumerate(before, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(after, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return 1.0 - row[-1] / max(len(before), len(after), 1)


def handle(
    client: Client, task: Task, *, me: str, outbox: Path, person: Callable[[Task, str], Verdict]
) -> dict[str, Any]:
    """Draft, have it edited, send; report every step to the service.

    Args:
        client: of the service.
        task: what to write.
        me: the sender's first name.
        outbox: folder of what was sent.
        person: edits the draft and says whether to send it.

    Returns:
        What happened, for people.
    """
    decision = client.decide(
        "email",
        "tone",
        {
            "kind": task.kind,
            "recipient": task.recipient,
            "notes_words": len(task.notes.split()),
        },
        unit=task.recipient,
        default="friendly",
    )
    begun = time.monotonic()
    draft = compose(task, decision.action, me)
    client.log_interaction(decision, body={"kind": task.kind, "notes": task.notes})
    client.log_interaction(decision, output=True, body={"draft": draft, "tone": decision.action})
    verdict = person(task, draft)
    kept = similarity(draft, verdict.text)
    client.submit_feedback(
        decision, outcomes={"edit_similarity": kept}, body={"text": verdict.text}
    )
    file = _send(task, verdict, me, outbox, decision) if verdict.send else None
    outcomes = {"sent": float(verdict.send), "seconds": time.monotonic() - begun}
    client.task_result(decision, outcomes=outcomes)
    return {
        "to": task.to,
        "tone": decision.action,
        "propensity": decision.propensity,
        "kept": kept,
        "sent": None if file is None else file.name,
    }


def ask_in_terminal(task: Task, draft: str) -> Verdict:
    """Let a person at the terminal edit the draft, and send it or not."""
    text = draft
    while True:
        click.echo(f"\nTo: {task.to}\n\n{text}\n")
        answer = click.prompt("[s]end, [e]dit, [d]iscard", type=click.Choice(list("sed")))
        if answer != "e":
            return Verdict(text, send=answer == "s")
        text = click.edit(text) or text


def edit_as_scripted(task: Task, draft: str) -> Verdict:
    """Edit as the task's script says."""
    for old, new in task.edit:
        draft = draft.replace(old, new)
    return Verdict(draft, task.send)


def read_script(lines: Iterable[str]) -> list[Task]:
    """Return the tasks of a script, one JSON object a line.

    Raises:
        InputError: a line is not a task; the message names it.
    """
    tasks = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            tasks.append(msgspec.json.decode(line, type=Task))
        except msgspec.MsgspecError as error:
            raise InputError(f"line {number} of the script is not a task: {error}") from error
    return tasks


def main() -> None:
    """Write one e-mail with a person at the terminal, or several as a script says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", help="address of the one e-mail to write")
    parser.add_argument("--kind", choices=get_args(Kind), default="reminder")
    parser.add_argument("--recipient", choices=get_args(Recipient), default="colleague")
    parser.add_argument("--notes", default="", help="what it is to say")
    parser.add_argument("--me", default="Kim", help="the sender's first name")
    parser.add_argument(
        "--outbox", type=Path, default=Path("outbox"), help="folder of what is sent"
    )
    parser.add_argument("--script", type=Path, help="file of tasks instead, one JSON object a line")
    parser.add_argument("--pause-s", type=float, default=0.0, help="between the tasks of a script")
    given = parser.parse_args()
    if (given.to is None) == (given.script is None):
        parser.error("give either --to, for one e-mail, or --script")
    try:
        if given.script is None:
            alone = Task(given.to, given.kind, given.recipient, given.notes)
            _draft([alone], ask_in_terminal, given)
        else:
            with given.script.open(encoding="utf-8") as lines:
                tasks = read_script(lines)
            _draft(tasks, edit_as_scripted, given)
    except (ClientError, OSError, UnicodeDecodeError) as refused:
        parser.exit(1, f"{parser.prog}: {refused}\n")


def _draft(
    tasks: Iterable[Task], person: Callable[[Task, str], Verdict], given: argparse.Namespace
) -> None:
    with Client() as client:
        for task in tasks:
            done = handle(client, task, me=given.me, outbox=given.outbox, person=person)
            sent = done["sent"] or "not sent"
            time.sleep(given.pause_s)
            click.echo(
                f"{done['to']:<24} {done['tone']:<9} p {done['propensity']:.2f}   "
                f"kept {done['kept']:4.0%}   {sent}"
            )
        left = client.flush(10)
    click.echo(f"events that wait for the service: {left}")


def _send(task: Task, verdict: Verdict, me: str, outbox: Path, decision: Decision) -> Path:
    message = EmailMessage()
    message["From"], message["To"] = f"{me.lower()}@example.com", task.to
    message["Subject"] = task.kind.capitalize()
    message["Message-ID"] = f"<{decision.decision_id}@example.com>"
    message.set_content(verdict.text)
    outbox.mkdir(parents=True, exist_ok=True)
    file = outbox / f"{decision.decision_id}.eml"
    file.write_bytes(bytes(message))
    return file


if __name__ == "__main__":
    main()
