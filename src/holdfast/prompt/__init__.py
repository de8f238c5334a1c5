"""The system prompt: sections in a fixed order, each written by one function from the same inputs.

Nothing that varies by itself (time, counts, file lists) belongs here, because it would break prompt caches. Pure:
`runtime.prompting` reads the inputs, and the core records what was built.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.prompt import texts
from holdfast.protocol.prompt import CustomSection, Guidance, Section
from holdfast.protocol.settings import Settings
from holdfast.protocol.trust import Trust

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
MARK_CHARS = 16
"""So much of a file's hash marks where it begins and ends. No file can be made that contains its own mark."""


class Inputs(msgspec.Struct, frozen=True):
    """What a prompt is made from."""

    settings: Settings
    tools: Sequence[str] = ()
    """The names of the tools that the model is offered."""
    platform: str = ""
    guidance: Sequence[Guidance] = ()
    """The files of the workspace that say how to work in it, nearest last."""
    custom: Sequence[CustomSection] = ()
    """What packages add, beside the sections in the settings."""


class Piece(NamedTuple):
    """A text of a section, from one source."""

    section: str
    source: str
    text: str
    reason: str
    trust: Trust = "user"


def check_name(name: str, source: str) -> None:
    """Check the name of a custom section.

    Raises:
        UsageError: it is not valid, or it is one of Holdfast's own.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.80} ({source}) is not a valid name for a section of the system prompt.",
            hint="Use at most 32 lower-case letters, digits, - and _, beginning with a letter.",
        )
    if name in ORDER:
        raise UsageError(
            f"The section {name} ({source}) has the name of one of Holdfast's own.",
            hint=f"Choose a name other than {', '.join(ORDER)}.",
        )


Writer = Callable[[Inputs], Iterator[Piece]]


def pieces(inputs: Inputs) -> tuple[Piece, ...]:
    """Return the pieces of the prompt in order, without empty ones."""
    return tuple([piece for write in SECTIONS for piece in write(inputs) if piece.text])


def text_of(prompt: Sequence[Piece]) -> str:
    """Return the whole prompt."""
    return "\n\n".join([piece.text for piece in prompt])


def section_of(piece: Piece) -> Section:
    """Return what is recorded of a piece, beside the text of the whole."""
    sha256 = hashlib.sha256(piece.text.encode()).hexdigest()
    return Section(piece.section, piece.source, sha256, len(piece.text), piece.reason, piece.trust)


# --- the sections -------------------------------------------------------------------------------


def _identity(inputs: Inputs) -> Iterator[Piece]:
    yield Piece("identity", "holdfast", texts.IDENTITY, "every prompt has it")


def _platform(inputs: Inputs) -> Iterator[Piece]:
    where = texts.PLATFORM.format(platform=inputs.platform) if inputs.platform else ""
    yield Piece("platform", "holdfast", where, "every prompt has it")


def _workspace(inputs: Inputs) -> Iterator[Piece]:
    place = texts.WORKSPACE.format(workspace=inputs.settings.tools.workspace)
    has_files = bool(inputs.guidance)
    yield Piece(
        "workspace", "settings", f"{place} {texts.GUIDANCE}" if has_files else place, "every prompt has it"
    )
    trust: Trust = "untrusted" if inputs.settings.policy.is_workspace_untrusted else "data"
    for each in inputs.guidance:
        why = "the file is there, and only its beginning fits" if each.is_cut else "the file is there"
        yield Piece("workspace", each.path, _quoted(each), why, trust)


def _quoted(file: Guidance) -> str:
    """Return the file between two marks, so that nothing in it can pass for text outside of them."""
    mark = hashlib.sha256(file.text.encode()).hexdigest()[:MARK_CHARS]
    cut = f"\n{texts.CUT}" if file.is_cut else ""
    return f"[file {file.path}, mark {mark}]\n{file.text}{cut}\n[end of {file.path}, mark {mark}]"


def _rules(inputs: Inputs) -> Iterator[Piece]:
    yield Piece(
        "rules", "settings", inputs.settings.prompt.instructions.strip(), "the settings have instructions"
    )


def _tools(inputs: Inputs) -> Iterator[Piece]:
    if inputs.tools:
        offered = texts.TOOLS.format(names=", ".join(inputs.tools))
        plan = f" {texts.PLAN_FIRST}" if inputs.settings.conduct.needs_plan else ""
        yield Piece("tools", "settings", f"{offered}{plan} {texts.MASKS}", "tools are offered")
    else:
        yield Piece("tools", "settings", texts.NO_TOOLS, "no tool is offered")


def _safety(inputs: Inputs) -> Iterator[Piece]:
    level = inputs.settings.posture.autonomy
    yield Piece("safety", "settings", f"{texts.AUTONOMY[level]} {texts.TRUST}", f"the autonomy is {level}")


def _honesty(inputs: Inputs) -> Iterator[Piece]:
    yield Piece("honesty", "holdfast", texts.HONESTY, "every prompt has it")


def _answer(inputs: Inputs) -> Iterator[Piece]:
    schema, is_calibrated = inputs.settings.output.schema, inputs.settings.conduct.is_calibrated
    if schema:
        text = texts.CALIBRATED_JSON_ANSWER if is_calibrated else texts.JSON_ANSWER
        yield Piece("answer", "settings", text.format(schema=schema), "the answer has a schema")
    else:
        text = texts.CALIBRATED_ANSWER if is_calibrated else texts.PLAIN_ANSWER
        yield Piece("answer", "settings", text, "the answer is words")


def _custom(inputs: Inputs) -> Iterator[Piece]:
    for each in sorted([*inputs.settings.prompt.sections, *inputs.custom], key=lambda each: each.name):
        yield Piece(each.name, each.source, each.text.strip(), f"added by {each.source}")


SECTIONS: tuple[Writer, ...] = (
    _identity,
    _platform,
    _workspace,
    _rules,
    _tools,
    _safety,
    _honesty,
    _answer,
    _custom,
)
"""The sections in their order. The order of all names is `ORDER`."""

ORDER = (
    "identity",
    "user",
    "platform",
    "workspace",
    "rules",
    "tools",
    "memory",
    "safety",
    "honesty",
    "answer",
    "skills",
    "active_skills",
)
"""The names of the sections in their order; custom ones follow, sorted by name. Nothing writes `user`, `memory`,
`skills` and `active_skills` yet: their place is kept, so that a custom section cannot take the name."""
