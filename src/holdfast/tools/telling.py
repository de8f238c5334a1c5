"""Tools with the effect `tell`: no code of theirs runs. Their admission carries what the model says to the core."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from holdfast.protocol.answers import Answer
from holdfast.protocol.plan import PlanUpdate
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import ToolSpec
from holdfast.tools.unplanned import Unplanned

S = TypeVar("S", bound=PlanUpdate | Answer)


class Telling(Unplanned, Generic[S]):
    """A tool of that kind, with the shape of what it says."""

    def __init__(self, name: str, description: str, parameters: dict[str, Any], shape: type[S]) -> None:
        self.spec = ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect="tell",
            on_interrupt="rerun",
            source="builtin",
            trust="assistant",
        )
        self._shape = shape

    def said(self, values: dict[str, Any]) -> S:
        """Return what a call says. Its arguments passed the schema."""
        return msgspec.convert(values, self._shape)

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Raise an error: the core takes the call instead."""
        return RawResult("error", "Holdfast takes this call itself. There is nothing to run.")
