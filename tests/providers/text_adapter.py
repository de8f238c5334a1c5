"""What the corpus scorer calls to measure the reading of text calls; holds no test itself.

The corpus has calls of tools that its lists of tools do not have. So this is the reading alone; what may run of it is
decided by `tools.text_calls`.
"""

from __future__ import annotations

from typing import Any

from holdfast.protocol.text_formats import AUTO
from holdfast.providers.text_calls import read_text
from holdfast.providers.text_types import fitted


def parse_tool_calls(text: str, tools: list[dict[str, Any]] | None, fmt: str | None) -> dict[str, Any]:
    schemas = {tool["name"]: tool.get("parameters") for tool in tools or ()}
    read = read_text(text, fmt or AUTO)
    calls = [fitted(call, schemas.get(call.name)) for call in read.calls]
    return {
        "calls": [{"name": call.name, "args": call.arguments} for call in calls],
        "content": read.text,
        "incomplete": any(each.reason == "truncated" for each in read.rejected),
    }
