"""The keys for readers and editors: the JSON Schema of a configuration file, and all settings with origins.

The command line prints them.
"""

from __future__ import annotations

from typing import Any

from holdfast.config.keys import KEYS
from holdfast.config.settings import Config


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of config.toml and holdfast.toml."""
    root = _section()
    root = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Holdfast configuration",
    } | root
    for key in KEYS:
        *sections, last = key.path.split(".")
        node = root
        for name in sections:
            if name == "*":
                node["additionalProperties"] = node["additionalProperties"] or _section()
                node = node["additionalProperties"]
                continue
            node = node["properties"].setdefault(name, _section())
        node["properties"][last] = {**key.kind.schema, "description": f"{key.about} ({key.kind.allowed})"}
        if key.default is not None:
            node["properties"][last]["default"] = key.kind.write(key.default)
    return root


def _section() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}


def shown(config: Config) -> list[dict[str, Any]]:
    """Return every setting as `{"key", "value", "origin"}`, in the order of the table, with values as in a file.

    A key also has `"ignored": [{"value", "origin", "why"}]` if a file gives it a value that does not count. Its
    value and origin are null if nothing else sets it.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, setting in config.settings.items():
        key = next((key for key in KEYS if key.path == name), None)
        value = key.kind.write(setting.value) if key else setting.value
        value = list(value) if isinstance(value, tuple) else value
        rows[name] = {"key": name, "value": value, "origin": setting.origin}
    for each in config.ignored:
        row = rows.setdefault(each.key, {"key": each.key, "value": None, "origin": None})
        told = {"value": each.value, "origin": each.origin, "why": each.why}
        row.setdefault("ignored", []).append(told)
    return list(rows.values())
