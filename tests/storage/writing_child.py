"""A process that writes to a home until it is done or killed; it prints each acknowledged commit.

    python writing_child.py HOME NUMBER-OF-SESSION COMMITS EPOCH

With an epoch the process uses that lease, as one of two that believe they hold it; with 0 it takes the lease.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.core.evolve import fold
from holdfast.core.state import State
from holdfast.errors import Fenced, StorageError
from holdfast.protocol.codec import FIRST_LINK, decode
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.rows import Lease
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import NOW_MS, Driving, a_holder, an_id, lease_of


async def write(home: Path, number: int, commits: int, epoch: int) -> None:
    store = SqliteStore.open(home)
    session = await store.claim(an_id(number), "", NOW_MS)
    if epoch:
        lease = Lease(session, epoch, a_holder("shared"), 0)
    else:
        over = await lease_of(store, session)
        lease = await store.lease(session, a_holder("child"), 1, over)
    driving = Driving(store, lease, 0, FIRST_LINK)
    await follow(driving)
    print("ready", flush=True)
    sys.stdin.readline()
    for count in range(commits):
        blob = await store.blobs.put(f"{number}.{driving.seq}".encode())
        try:
            await driving.commit(MessageReceived(f"{count} {blob} " + "x" * 300), MessageReceived("y"))
        except Fenced:
            await follow(driving)
            continue
        print(driving.seq, flush=True)
    await store.aclose()


async def follow(driving: Driving) -> None:
    records = await driving.store.read(driving.session)
    driving.seq = len(records)
    driving.link = records[-1].link if records else FIRST_LINK
    driving.state = fold([decode(record) for record in records], State(session=driving.session))


if __name__ == "__main__":
    try:
        asyncio.run(write(Path(sys.argv[1]), *map(int, sys.argv[2:])))
    except StorageError as error:
        print(error.code, flush=True)
        sys.exit(error.exit_code)
