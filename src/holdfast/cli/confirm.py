"""Asks a person a question with the answers yes and no."""

from __future__ import annotations

import asyncio

from holdfast.cli.keyboard import Keyboard
from holdfast.cli.terminal import write


def confirmed(question: str) -> bool:
    """Return the answer. Enter alone does not answer, and the end of the input means no.

    The caller has made sure that somebody is there (`terminal.has_person`).
    """
    return asyncio.run(_asked(question))


async def _asked(question: str) -> bool:
    keyboard = Keyboard()
    while True:
        keyboard.forget()
        write(f"{question} y or n: ")
        line = await keyboard.line()
        if line is None:
            write("\n")
            return False
        match line.strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
