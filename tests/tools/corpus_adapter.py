"""What ../shared/tools/score_corpora.py asks of this project's path walk and schema gate."""

from __future__ import annotations

import json
from typing import Any

from holdfast.tools.schema import CheckedSchema
from holdfast.tools.workspace import PathRefused, Root, place


def resolve_path(root: str, user_path: str) -> str | None:
    try:
        with place(Root(root), user_path) as found:
            return found.whole
    except (PathRefused, OSError):
        return None


def validate_json(schema: Any, data: Any, draft: str) -> bool:
    checked = CheckedSchema(schema, "draft7" if draft == "draft7" else "")
    return not checked.problem(data, json.dumps(data), [])
