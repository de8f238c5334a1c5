"""The ask_user tool: a question to a person. No code runs; the core records the answer as the result."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned


class AskUser(Unplanned):
    """ask_user. The admission carries the question and its options."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            name="ask_user",
            description="Ask the user a question when you cannot continue without an answer. It may take long: "
            "decide for yourself whenever you can.",
            parameters=arguments_object(
                required=["question"],
                question={"type": "string", "minLength": 1},
                options={
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "description": "Answers to choose from.",
                },
            ),
            effect="ask",
            on_interrupt="rerun",
            source="builtin",
            trust="user",
        )

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Raise an error: a run asks a person instead."""
        return RawResult("error", "A person answers a question. There is nothing to run.")
