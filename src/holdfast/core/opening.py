"""How a run opens, and how its settings are recorded: each group of them once, by its name."""

from __future__ import annotations

from holdfast.core.draft import Draft
from holdfast.protocol import events as e
from holdfast.protocol.commands import Principal
from holdfast.protocol.settings import Settings, SettingsRef, groups_of, ref_of


def start_run(draft: Draft, settings: Settings, *, continued_by: Principal | None = None) -> None:
    """Open the next run: for the words that no request has carried yet, or as a continuation of the last run."""
    number = draft.state.run.number + 1 if draft.state.run is not None else 1
    stored = _stored(draft, settings)
    if continued_by is None:
        draft.add(e.RunStarted(number, stored))
    else:
        draft.add(e.RunStarted(number, stored, True, continued_by.label, continued_by.scopes))


def change_settings(draft: Draft, settings: Settings) -> None:
    """Record other settings for the open run."""
    if settings != draft.state.settings:
        draft.add(e.SettingsChanged(_stored(draft, settings)))


def _stored(draft: Draft, settings: Settings) -> SettingsRef:
    """The settings by name; groups that the journal does not have yet are recorded."""
    # A session of 500 runs with the same settings stores them once: each run refers to the groups by hash.
    ref = ref_of(settings)
    fresh = {
        name: group for name, group in groups_of(settings, ref).items() if name not in draft.state.groups
    }
    if fresh:
        draft.add(e.SettingsStored(fresh))
    return ref
