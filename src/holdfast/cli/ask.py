"""Asks the person at the terminal: shows an approval or a question in full, and takes one clear answer.

`control` answers from another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from holdfast.cli.terminal import tell
from holdfast.protocol.commands import Resolve
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import Index
from holdfast.protocol.rows import Approval
from holdfast.views.lines import EXACT, Line, Span, neutral
from holdfast.views.lists import approval_call_lines, clipped_call, framed, lasting_lines, readable_call

_LOOK_S = 0.1
"""How often to check whether the approval was decided elsewhere."""

_ELSEWHERE = (
    "This process does not have what the model wrote. If the one that has it still waits at its prompt, the call runs"
    " there. Otherwise Holdfast asks the model to make it again."
)


class Person(Protocol):
    """The person at the terminal."""

    @property
    def way_out(self) -> str:
        """The key that leaves a question open."""
        ...

    async def answer(self, prompt: str) -> str | None:
        """Return the person's answer; None if they leave the question open. Keys typed before do not count."""
        ...

    def forget(self) -> None:
        """Drop a half-typed answer."""
        ...


class Unanswered(Exception):
    """The person left the question open, or the input ended."""


async def ask(
    index: Index, person: Person, row: Approval, diff: Sequence[Line] = (), *, can_run: bool
) -> Resolve | None:
    """Return the person's answer, or None if the approval was decided elsewhere.

    Args:
        diff: What the call would change in a file.
        can_run: This process has what the model wrote, and not only a masked copy.

    Raises:
        Unanswered: The person leaves it open.
    """
    asked = _question(person, row) if row.question else _approval(person, row, diff, can_run=can_run)
    asking = asyncio.create_task(asked)
    deciding = asyncio.create_task(decided(index, row.id))
    tasks = (asking, deciding)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        deciding.result()
        person.forget()  # a half-typed answer must not become a message
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def decided(index: Index, approval_id: str) -> None:
    """Wait until the approval is decided, expired or withdrawn."""
    while True:
        row = await index.approval(approval_id)
        if row is None or row.decision:
            return
        await asyncio.sleep(_LOOK_S)


# --- approvals ----------------------------------------------------------------------------------


async def _approval(person: Person, row: Approval, diff: Sequence[Line], *, can_run: bool) -> Resolve:
    """Ask for yes or no. Enter alone does not answer, and yes is refused while a part of the call is hidden."""
    _, hidden = clipped_call(row.arguments)
    tell([])
    tell([Span(row.tool, "bold yellow"), "  ", Span(row.reason, EXACT)])
    for line in (*diff, *approval_call_lines(row), *lasting_lines(row)):
        tell(line)
    if not can_run:
        tell([Span(f"  {_ELSEWHERE}", "yellow")])
    _tell_way_out(person)
    while True:
        more = f", v shows {counted(hidden, 'hidden character')}" if hidden else ""
        always = ", a: always" if row.offer is not None else ""
        answer = await _line(person, f"Approve it? y, n, or n and why{always}{more}: ")
        word, _, why = answer.strip().partition(" ")
        match word.lower():
            case "v" if hidden:
                for line in framed(readable_call(row.arguments)):
                    tell(line)
                hidden = 0
            case "a" | "always" if row.offer is None:
                why_not = neutral(row.no_offer) or "No grant may cover it."
                tell([f"  {why_not} Type y to approve this one call."])
            case "y" | "yes" | "a" | "always" if hidden:
                tell([f"  Press v first. It shows {counted(hidden, 'hidden character')}."])
            case "y" | "yes":
                return Resolve(row.id, "approve", why)
            case "a" | "always":
                return Resolve(row.id, "approve", why, makes_grant=True)
            case "n" | "no":
                return Resolve(row.id, "deny", why)
            case _:
                tell([f"  Type y to approve, n to deny, or n and why. {person.way_out} leaves it open."])


# --- questions ----------------------------------------------------------------------------------


async def _question(person: Person, row: Approval) -> Resolve:
    """Ask for words. A number picks an option."""
    tell([])
    tell([Span(neutral(row.question), "bold yellow")])
    for number, option in enumerate(row.options, 1):
        tell([f"  {number}. {option}"])
    _tell_way_out(person)
    while True:
        answer = (await _line(person, "Answer: ")).strip()
        if answer.isdecimal() and 0 < int(answer) <= len(row.options):
            answer = row.options[int(answer) - 1]
        if answer:
            return Resolve(row.id, "answer", answer)
        number_or = "a number or " if row.options else ""
        tell([f"  Type {number_or}an answer. {person.way_out} leaves the question open."])


def _tell_way_out(person: Person) -> None:
    tell([Span(f"  {person.way_out} leaves it open.", "dim")])


async def _line(person: Person, prompt: str) -> str:
    line = await person.answer(prompt)
    if line is None:
        raise Unanswered()
    return line
