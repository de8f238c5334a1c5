"""A driver's mailbox keeps its items in order, from any sender and at any time."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.runtime.mailbox import Mailbox


async def next_of(mailbox: Mailbox[int]) -> int:
    await mailbox.ready()
    return mailbox.take()


async def test_items_are_taken_in_the_order_in_which_they_came() -> None:
    mailbox: Mailbox[int] = Mailbox()
    for number in range(3):
        mailbox.put(number)
    assert len(mailbox) == 3
    assert [await next_of(mailbox) for _ in range(3)] == [0, 1, 2]
    assert not mailbox


async def test_a_reader_that_waits_is_woken_by_the_first_of_several_items() -> None:
    mailbox: Mailbox[int] = Mailbox()
    reading = asyncio.create_task(next_of(mailbox))
    await asyncio.sleep(0)
    mailbox.put(1)
    mailbox.put(2)
    assert await reading == 1
    assert await next_of(mailbox) == 2


async def test_a_reader_can_be_woken_without_an_item() -> None:
    mailbox: Mailbox[int] = Mailbox()
    waiting = asyncio.create_task(mailbox.ready())
    await asyncio.sleep(0)
    mailbox.wake()
    await waiting
    assert not mailbox


async def test_a_reader_that_gave_up_takes_nothing() -> None:
    mailbox: Mailbox[int] = Mailbox()
    reading = asyncio.create_task(next_of(mailbox))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    mailbox.put(1)
    assert await next_of(mailbox) == 1
