"""Functions that are hooks in scenarios. What they hear is in the workspace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
HEARD = "heard.jsonl"


def _text(event: Event) -> str:
    return json.dumps(event["arguments"])


async def note(event: Event) -> None:
    """Note what happened."""
    with Path(event["workspace"], HEARD).open("a") as heard:
        heard.write(json.dumps(event) + "\n")


async def deny(event: Event) -> Event:
    """Deny what says so."""
    return {"verdict": "deny", "reason": "Not this."} if "forbidden" in _text(event) else {}


async def change(event: Event) -> Event | None:
    """Double an amount: seen when it is done twice."""
    amount = event["arguments"].get("amount", 0)
    return {"arguments": {"amount": amount * 2}} if amount else None


async def ask(event: Event) -> Event:
    """Ask about what says so."""
    return {"verdict": "ask", "reason": "Is it so?"} if "doubtful" in _text(event) else {}


async def hang(event: Event) -> None:
    """Never answer about what says so."""
    if "endless" in _text(event):
        await asyncio.sleep(1_000_000)


async def die(event: Event) -> Event:
    """Fail for what says so."""
    if "deadly" in _text(event):
        raise RuntimeError("I am gone")
    return {}


async def hang_always(event: Event) -> None:
    """Never answer."""
    await asyncio.sleep(1_000_000)


async def refuse(event: Event) -> Event:
    """Deny everything."""
    return {"verdict": "deny", "reason": "Not today."}


async def refuse_later(event: Event) -> Event:
    """Deny the second request."""
    return {"verdict": "deny", "reason": "Once is enough."} if event["turn"] == 2 else {}


async def doubt(event: Event) -> Event:
    """Ask about everything."""
    return {"verdict": "ask", "reason": "Is it so?"}


async def fail(event: Event) -> None:
    """Fail."""
    raise RuntimeError("I am gone")


async def water(event: Event) -> Event:
    """Replace a word."""
    return {"arguments": {"text": event["arguments"]["text"].replace("beer", "water")}}


async def leak(event: Event) -> Event:
    """Put in what looks like a secret."""
    return {"arguments": {"text": "password=" + "Tr0ub4dor" + "-and-3"}}
