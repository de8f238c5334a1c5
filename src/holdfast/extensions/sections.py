"""The sections of system prompts that packages add, by the group `holdfast.sections`.

An entry point is a function of the run's settings that returns the text; its name is the section's. It is called when
a prompt is built, never for a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import UsageError
from holdfast.extensions.found import MEND, EntryPoint, entry_points
from holdfast.prompt import check_name
from holdfast.protocol.prompt import CustomSection
from holdfast.protocol.settings import Settings

GROUP = "holdfast.sections"


def package_sections(settings: Settings, path: Sequence[str] | None = None) -> tuple[CustomSection, ...]:
    """Return the sections for a run.

    Raises:
        UsageError: one cannot be loaded or fails, its name is not valid, or it returns no text.
    """
    return tuple([_section(each, settings) for each in entry_points(GROUP, path)])


def _section(found: EntryPoint, settings: Settings) -> CustomSection:
    source = f"package {found.package}"
    check_name(found.name, source)
    try:
        text = found.load()(settings)
    except Exception as error:
        raise _wrong(found, f"failed: {type(error).__name__}: {error}", found.hint(error)) from error
    if not isinstance(text, str):
        raise _wrong(found, f"returned {text!r:.80}: it must return text")
    return CustomSection(found.name, text, source)


def _wrong(found: EntryPoint, what: str, hint: str = MEND) -> UsageError:
    return UsageError(
        f"The prompt section {found.name} of the package {found.package} ({found.target}) {what}.",
        hint=hint,
    )
