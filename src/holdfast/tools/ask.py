"""ask_user: a question to a person. Nothing runs; the answer is the result, recorded by the core."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.schema import arguments_object
from holdfast.tools.unplanned import Unplanned


class AskUser(Unplanned):
    """ask_user: the question and its options travel in the admission."""

    def __init__(self) -> None:
        self.spec = ToolSpec(
            name="ask_user",
            description="Ask the user a question when you cannot go on without an answer. It may take long: "
            "decide yourself whatever you can.",
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
        """Never reached in a run: the question is put to a person instead."""
        return RawResult("error", "A question is answered by a person; there is nothing to run.")
