"""Which options a model takes, and whether it reads images.

Known from the documentation of the services. What a model does not take is left out of requests, because its service
would refuse them. A model that nothing is known of gets what the user set.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.protocol.limits import NO_OPTIONS, ModelOptions


class _Takes(NamedTuple):
    glob: str
    effort: bool
    most_temperature: float
    """0: it takes none."""


_KNOWN = (
    _Takes("openai:gpt-3*", effort=False, most_temperature=2),
    _Takes("openai:gpt-4*", effort=False, most_temperature=2),
    _Takes("openai:chatgpt-*", effort=False, most_temperature=2),
    _Takes("openai:gpt-5-chat*", effort=False, most_temperature=2),
    _Takes("openai:gpt-5*", effort=True, most_temperature=0),
    _Takes("openai:o[134]*", effort=True, most_temperature=0),
    _Takes("anthropic:claude-3*", effort=False, most_temperature=1),
    _Takes("anthropic:claude-opus-4-[01]*", effort=False, most_temperature=1),
    _Takes("anthropic:claude-opus-4-20*", effort=False, most_temperature=1),
    _Takes("anthropic:claude-sonnet-4-[05]*", effort=False, most_temperature=1),
    _Takes("anthropic:claude-sonnet-4-20*", effort=False, most_temperature=1),
    _Takes("anthropic:claude-haiku-4-5*", effort=False, most_temperature=1),
    _Takes("anthropic:*", effort=True, most_temperature=1),
    _Takes("groq:openai/gpt-oss*", effort=True, most_temperature=2),
    _Takes("groq:*", effort=False, most_temperature=2),
    _Takes("mistral:*", effort=False, most_temperature=1.5),
    _Takes("script:*", effort=False, most_temperature=0),
)
"""The first match counts. Sources: platform.openai.com/docs/guides/reasoning, console.groq.com/docs/reasoning,
docs.claude.com/en/docs/build-with-claude/effort, docs.mistral.ai/api."""
_READ_IMAGES = (
    "openai:gpt-4o*",
    "openai:gpt-4.1*",
    "openai:gpt-4-turbo*",
    "openai:gpt-5*",
    "openai:o1",
    "openai:o1-2*",
    "openai:o3",
    "openai:o3-2*",
    "openai:o4-mini*",
    "anthropic:claude-*",
    "google:gemini-*",
)
_READ_NONE = (
    "openai:gpt-4o*-audio*",
    "openai:gpt-4o*-search*",
    "anthropic:claude-2*",
    "anthropic:claude-instant*",
)
"""Exceptions. Of others nothing is known, unless `images` in a catalog entry says it."""
_ALL = _Takes("*", effort=True, most_temperature=2)


def taken(price_list: str, model: str, wished: ModelOptions) -> ModelOptions:
    """Return the options that the model takes. `price_list` names its provider where others serve the same models."""
    if wished == NO_OPTIONS:
        return wished
    takes = next((each for each in _KNOWN if fnmatchcase(f"{price_list}:{model}", each.glob)), _ALL)
    if not takes.effort:
        wished = replace(wished, effort="")
    if wished.temperature is not None and (
        not takes.most_temperature or wished.temperature > takes.most_temperature
    ):
        wished = replace(wished, temperature=None)
    return wished


def reads_images(price_list: str, model: str) -> bool:
    """Return whether the model is known to read images. `price_list` is as in `taken`."""
    name = f"{price_list}:{model}"
    if any(fnmatchcase(name, glob) for glob in _READ_NONE):
        return False
    return any(fnmatchcase(name, glob) for glob in _READ_IMAGES)


def written(options: ModelOptions, effort_field: str) -> bytes:
    """Return the fields of a body for the options. `effort_field` has `%s` for the effort."""
    if options == NO_OPTIONS:
        return b""
    fields: list[Any] = []
    if options.effort:
        fields.append(effort_field % options.effort)
    if options.temperature is not None:
        fields.append(f'"temperature":{options.temperature:g}')
    return "".join(f",{field}" for field in fields).encode()
