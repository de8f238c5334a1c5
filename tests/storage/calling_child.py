"""A process that calls a service as its circuit lets it, and tells what it was allowed.

    python calling_child.py HOME NUMBER-OF-SESSION

Each line that it reads is a request: `ask`, or how its call ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.protocol.circuits import CallEnded, Caller, CircuitRules
from holdfast.protocol.rates import Draw
from holdfast.protocol.services import Outgoing
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import drive

NAME = "p:m#1"
RULES = CircuitRules(failures=3, cooldown_ms=1)
LEASE_MS = 1_000


async def call(home: Path, number: int) -> None:
    store = SqliteStore.open(home)
    driving = await drive(store, number)
    caller = Caller(driving.session, "m1", driving.lease.epoch)
    print("ready", flush=True)
    for line in sys.stdin:
        await store.renew([driving.lease], LEASE_MS)
        match line.strip():
            case "ask":
                later = (await store.may_call(Outgoing(NAME, Draw(caller, 0, 60_000, ()), RULES))).later
                print(later.why if later is not None else "call", flush=True)
            case "works":
                await store.ended(CallEnded(caller, NAME, "works", rules=RULES))
                print("ended", flush=True)
            case "fails":
                await store.ended(CallEnded(caller, NAME, "fails", rules=RULES))
                print("ended", flush=True)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(call(Path(sys.argv[1]), int(sys.argv[2])))
