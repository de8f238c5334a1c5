"""A session goes on with a provider of another wire, with words that no commit holds yet."""

from __future__ import annotations

from holdfast.protocol.events import MessageReceived, SessionOpened
from holdfast.protocol.messages import Text
from holdfast.runtime.fold import Fold
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.driving import drive
from tests.context.talks import ANTHROPIC, OPENAI, Talk


async def test_words_of_the_commit_in_the_making_are_in_what_the_other_wire_writes() -> None:
    talk = Talk(OPENAI)
    talk.note(SessionOpened("S"))
    talk.words("What was said before.")
    talk.send()
    talk.respond(Text("An answer."))
    store = VolatileStore()
    driving = await drive(store, 1)
    await store.blobs.put(talk.base)
    await driving.commit(*(record.event for record in talk.records))
    fold = Fold(driving.session)
    fold.load(await store.read(driving.session))
    batch = [fold.note(MessageReceived("What is new."), 1, 1, "c")]
    await fold.rewrite(store, batch)
    body = fold.conversation.render(ANTHROPIC, b"[").body(b"")
    assert body.index(b"said before") < body.index(b"An answer.") < body.index(b"What is new.")
    assert body.count(b"What is new.") == 1
    await store.aclose()
