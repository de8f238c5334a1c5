"""The child process of `isolation="process"`: calls one tool function and writes its result to a descriptor.

    python -P function_child.py ANSWER_FD PATH... < request      PATH...: the parent's module search path

`sandbox.process` stops it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import runpy
import sys
from typing import Any


def main() -> None:
    """Read the request, call the function, and write its result."""
    sys.path[:] = sys.argv[2:]
    request = json.load(sys.stdin)
    with open(int(sys.argv[1]), "w", encoding="utf-8", closefd=False) as file:
        file.write(_result(request))


def _result(request: dict[str, Any]) -> str:
    import msgspec

    from holdfast.protocol.ports import CallContext
    from holdfast.tools.function import FunctionTool
    from holdfast.tools.results import failed, result_of

    try:
        found: Any = _module(request)
        for name in request["name"].split("."):
            found = found[name] if isinstance(found, dict) else getattr(found, name)
        if not isinstance(found, FunctionTool):
            raise TypeError(f"{request['name']} is no longer a tool")
        context = CallContext(
            **request["context"], timeout_s=0.0, idle_s=0.0, on_output=_print, check=_never_over
        )
        value = found.function(**found.bound(request["arguments"], context))
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        result = result_of(value)
    except Exception as error:  # the edge of this process: every exception of the function becomes its result
        result = failed(request["name"].rpartition(".")[2], error)
    return msgspec.json.encode(result).decode()


def _never_over() -> int:
    """Always pass: nobody tells this process when a lease is renewed, and the next driver ends it."""
    return sys.maxsize


def _print(text: str) -> None:
    print(text, end="", flush=True)


async def _awaited(value: Any) -> object:
    return await value


def _module(request: dict[str, Any]) -> Any:
    """Return the names of the module or of the program's file, which does not run as `__main__`."""
    if request["file"]:
        return runpy.run_path(request["file"], run_name="__mp_main__")
    return importlib.import_module(request["module"])


if __name__ == "__main__":
    main()
