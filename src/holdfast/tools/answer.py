"""The answer tool: the model gives its answer with a confidence. `core.answers` says what comes of it."""

from __future__ import annotations

from typing import Any

from holdfast.protocol.answers import ANSWER, MAX_REMARK_CHARS, MAX_REMARKS, Answer
from holdfast.tools.schema import arguments_object
from holdfast.tools.telling import Telling

_DESCRIPTION = (
    "Give the answer to the task, and end the run. Call it alone, when the work is done and its results are in. "
    "Be honest about your confidence: it is the share of such answers that turn out to be right."
)


def answer() -> Telling[Answer]:
    """Return the tool."""
    remarks: dict[str, Any] = {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_REMARK_CHARS},
        "maxItems": MAX_REMARKS,
    }
    parameters = arguments_object(
        required=["text", "confidence", "reasons", "caveats"],
        text={"type": "string", "minLength": 1, "description": "The whole answer, as the user reads it."},
        confidence={"type": "number", "minimum": 0, "maximum": 1},
        reasons={**remarks, "description": "What the answer rests on."},
        caveats={**remarks, "description": "What may be wrong, and what was not verified."},
    )
    return Telling(ANSWER, _DESCRIPTION, parameters, Answer)
