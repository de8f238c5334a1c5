"""What every store's books must do (`protocol.spending`), as tests. `StoreConformance` has them."""

from __future__ import annotations

from holdfast.errors import Fenced
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.ports import Store
from holdfast.protocol.spending import Amounts, Line
from holdfast.testing.driving import NOW_MS, Driving, drive, refused


class LedgerConformance:
    """The tests. `store` is a fixture of the class that inherits: an empty store, for one test."""

    async def test_the_books_have_what_was_committed_also_of_a_deleted_session(self, store: Store) -> None:
        one, two = await drive(store, 1), await drive(store, 2)
        said = (
            Line(one.session, "m1", NOW_MS, "ann", "p:m", "work", Amounts(70, 30)),
            Line(one.session, "m2", NOW_MS + 5, "ann", "p:m", "lost", Amounts(held=9)),
        )
        other = Line(two.session, "m1", NOW_MS + 9, "bob", "p:n", "summary", Amounts(4, 4))
        assert (await store.spent(), list(await store.lines())) == (Amounts(), [])
        await one.commit(MessageReceived("one"), lines=said)
        await two.commit(MessageReceived("two"), lines=(other,))
        assert await store.spent() == Amounts(74, 34, 9)
        assert await store.spent(NOW_MS + 5) == Amounts(4, 4, 9)
        assert await store.spent(session=one.session) == Amounts(70, 30, 9)
        assert list(await store.lines()) == [*said, other]
        assert list(await store.lines(NOW_MS + 1, one.session)) == [said[1]]
        await store.delete(one.lease)
        assert list(await store.lines()) == [*said, other]

    async def test_a_commit_that_is_refused_leaves_the_books_as_they_were(self, store: Store) -> None:
        driving = await drive(store)
        line = Line(driving.session, "m1", NOW_MS, "ann", "p:m", "work", Amounts(70))
        stale = Driving(store, driving.lease, 5, driving.link)
        await refused(Fenced, stale.commit(MessageReceived("no"), lines=(line,)))
        assert await store.spent() == Amounts()
