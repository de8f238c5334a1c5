"""Tools that another process can import."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.request
from pathlib import Path

from holdfast.tools.context import Context
from holdfast.tools.function import tool


@tool(effect="exec", isolation="process")
def where(count: int, context: Context) -> dict[str, object]:
    """Tell about the process."""
    print("working")
    context.progress("heard\n")
    return {"pid": os.getpid(), "count": count, "key": context.key, "workspace": context.workspace}


@tool(effect="exec", isolation="process")
async def twice(text: str) -> str:
    """Double it, later."""
    await asyncio.sleep(0)
    return text * 2


@tool(effect="exec", isolation="process")
def hangs() -> None:
    """Never comes back."""
    time.sleep(300)


@tool(effect="exec", isolation="process")
def breaks(how: str) -> None:
    """Fail in one way or another."""
    if how == "dies":
        os._exit(7)
    raise ValueError(how)


@tool(effect="exec", isolation="process")
def takes(what: str) -> int:
    """Take more than a sandbox gives."""
    if what == "time":
        signal.raise_signal(signal.SIGXCPU)  # as the kernel does
    return len(bytearray(1 << 30))


@tool(effect="exec", isolation="process")
def reads(path: str) -> str:
    """Read a file, and say which variables there are."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        text = error.strerror
    return f"{text} {sorted(os.environ)}"


@tool(effect="exec", isolation="process")
def sends_token(host: str) -> str:
    """Send what is in a variable to a host, and return it with what the host says."""
    token = os.environ["API_TOKEN"]
    request = urllib.request.Request(f"http://{host}/", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        return f"{token} {answer.read().decode()}"


@tool(effect="network", isolation="process")
def fetches(host: str) -> str:
    """Read the first page of a host."""
    with urllib.request.urlopen(f"http://{host}/") as answer:
        return str(answer.read().decode())
