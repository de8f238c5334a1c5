"""The names of the formats in which models without native tool calls write them."""

from __future__ import annotations

from collections.abc import Mapping

AUTO = "auto"
"""Every format that has a wrapper of its own. Bare JSON is never a call."""

TEXT_FORMATS: tuple[str, ...] = (
    "apertus", "apriel", "cohere", "cohere2moe", "command_r7b", "command_r_plus", "deepseek_r1", "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "deepseek_v4_flash", "delimiter", "dots",
    "ernie45", "fence", "firefunction_v2", "function_call", "functionary_v31", "functionary_v32",
    "functiongemma", "gemma4", "generic_json", "gigachat3", "glm45", "glm47", "granite", "granite4",
    "granite_20b_fc", "harmony", "hermes", "hunyuan", "hunyuan_v3", "inkling", "internlm2", "invoke", "jamba",
    "json", "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "llama3_json", "llama4_pythonic", "longcat",
    "mimo", "minicpm5_xml", "minimax_m2", "minimax_m3", "mistral", "muse", "muse_glimmer", "nemotron_v2",
    "nemotron_v3", "olmo3_pythonic", "openai_json", "perl", "phi4_mini", "plamo3", "poolside_v1", "pythonic",
    "qwen3_xml", "reka", "seed_oss", "spark", "step3", "step3p5", "xlam",
)  # fmt: skip
"""Sorted, without `AUTO`. `providers.text_formats` says how each of them is read."""

_BARE = "has no wrapper, so anything that the model repeats could be a call"
_RARE = "is only read by `parse-calls`"
UNFIT: Mapping[str, str] = {
    "deepseek_v41": _RARE,
    "function_call": _RARE,
    "functionary_v32": _BARE,
    "generic_json": _BARE,
    "json": _BARE,
    "minicpm5_xml": _RARE,
    "minimax_m3": _RARE,
    "openai_json": _BARE,
    "perl": _RARE,
    "pythonic": _BARE,
    "xlam": _BARE,
}
"""The formats that are read and that no run uses, and why."""

RUN_FORMATS = tuple(name for name in TEXT_FORMATS if name not in UNFIT)
"""The formats of `[catalog.GLOB] tool_calls`."""

TOOL_CALLS = ("native", "text", *RUN_FORMATS)
"""The values of `[catalog.GLOB] tool_calls`. `text`: one format is described, and all with a wrapper are read."""

UNREADABLE = "unreadable_call"
"""The name of a call that could not be read. The gates refuse it."""


def format_of(tool_calls: str | None) -> str:
    """Return the format that a value of `tool_calls` names; empty for native calls."""
    return {None: "", "native": "", "text": AUTO}.get(tool_calls, tool_calls or "")
