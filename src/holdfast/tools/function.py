"""The `@tool` decorator: makes a Python function, sync or async, a tool.

`signature` describes the function to the model. The dispatcher turns its exceptions into results.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec

from holdfast.deadlines import Deadlines
from holdfast.errors import ToolError
from holdfast.policy.paths import is_inside
from holdfast.protocol.fence import Launch
from holdfast.protocol.outcomes import Probed
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.protocol.tools import Effect, Expectation, Files, OnInterrupt, ToolSpec
from holdfast.sandbox.probing import interpreter
from holdfast.sandbox.process import Ended, Processes, clean_environment
from holdfast.sandbox.unnamed import unnamed_file
from holdfast.tools import aside
from holdfast.tools.annotations import placed, typed, unwrapped
from holdfast.tools.blocking import Refused, in_thread
from holdfast.tools.context import Context, fits
from holdfast.tools.fencing import Fences
from holdfast.tools.limits import limited, over
from holdfast.tools.results import result_of
from holdfast.tools.signature import Signature, describe
from holdfast.tools.threads import Threads, raisable
from holdfast.tools.unreached import note
from holdfast.tools.web import redactor_of
from holdfast.tools.within import cause, failure
from holdfast.tools.workspace import Root
from holdfast.tools.writing import probe

MAX_THREADS = 16
"""The most calls of one sync tool that run at once. More calls wait."""

_EFFECTS = ("read", "write", "exec", "network")
_CHILD = str(Path(__file__).with_name("function_child.py"))

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Plan = Callable[..., Files | None]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = "exec",
    on_interrupt: OnInterrupt | None = None,
    timeout_s: float = 120.0,
    isolation: Literal["process"] | None = None,
    name: str = "",
    plan: Plan | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    effect: Effect = "exec",
    on_interrupt: OnInterrupt | None = None,
    timeout_s: float = 120.0,
    isolation: Literal["process"] | None = None,
    name: str = "",
    plan: Plan | None = None,
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a function a tool, with `@tool` or `@tool(...)`. You can still call the function.

    Parameters may have any type that JSON has, and be dataclasses, msgspec structs, pydantic models, enums, `Path` or
    `datetime`. The docstring describes them in Google, NumPy or Sphinx style, or `Annotated[int, "How many lines."]`
    does. The model sees the text of a `ToolError` that the function raises. Any other exception is a bug.

    A parameter annotated `Context[Deps]` gets the context of the call, and the deps of the run. The
    model does not see it.

    Policy judges a parameter annotated `Annotated[str, "path"]` (or `"command"`, `"url"`) like those of the built-in
    tools. `Annotated[float, "timeout"]` sets the time limit of the call. Policy judges no other argument.
    The result has the trust `data`, and `untrusted` with the effect `network`. `-> Annotated[str, "untrusted"]`
    sets another trust. A result that is `data` counts as private; `-> Annotated[str, "public"]` or `"private"` says
    otherwise.

    Args:
        function: The function under a bare `@tool`.
        effect: What it does to the world: `read`, `write`, `exec` or `network`. The default is `exec`, which needs
            approval where people are asked.
        on_interrupt: What to do after a crash, when its outcome is unknown. By default a reading function runs
            again; for any other, Holdfast tells the model that the outcome is unknown.
        timeout_s: The time limit. An async function is cancelled after it. A sync function cannot be stopped, and
            neither can an async one that ignores its cancellation: it continues, and Holdfast tells the model that
            the outcome is unknown.
        isolation: `process` runs it in its own process, which can be stopped. This costs about 0.1 s a call.
        name: Replaces the function's own name.
        plan: For `on_interrupt="probe"`. Takes the function's arguments and returns the file changes that it would
            make, so that a probe can look for them.

    Raises:
        TypeError: the function cannot be described to a model, or the options do not fit together.
    """

    def decorate(function: Callable[P, R]) -> FunctionTool[P, R]:
        if not inspect.isroutine(function):
            raise TypeError(
                f'{function!r} is not a function. Write @tool or @tool(effect="read") above a def.'
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            hint = "return the whole text, and report with the progress of a Context"
            raise TypeError(f"{function.__name__}: a generator cannot be a tool; {hint}")
        if effect not in _EFFECTS:
            raise TypeError(f"{function.__name__}: effect must be one of {', '.join(_EFFECTS)}")
        signature = describe(function)
        rule = on_interrupt or ("rerun" if effect == "read" else "unknown")
        if (rule == "probe") != (plan is not None):
            raise TypeError(f'{function.__name__}: on_interrupt="probe" and `plan` must be set together')
        spec = ToolSpec(
            name=name or function.__name__,
            description=signature.description,
            parameters=signature.schema,
            effect=effect,
            on_interrupt=rule,
            timeout_s=timeout_s,
            keeps_time=isolation == "process" or not inspect.iscoroutinefunction(function),
            source="function",
            trust=signature.trust or ("untrusted" if effect == "network" else "data"),
            is_private=signature.is_private,
            kinds=signature.kinds,
        )
        if isolation == "process" and not fits(None, signature.deps):
            raise TypeError(
                f'{function.__name__}: isolation="process" cannot hand over deps; use plain Context'
            )
        target = _target(function) if isolation == "process" else None
        return FunctionTool(function, spec, signature, plan, target)

    return decorate if function is None else decorate(function)


class FunctionTool(Generic[P, R]):
    """A function that is also a `ports.Tool`."""

    def __init__(
        self,
        function: Callable[P, R],
        spec: ToolSpec,
        signature: Signature,
        plan: Plan | None,
        target: dict[str, str] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.spec = spec
        self._signature = signature
        self._plan = plan
        self._target = target
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = Threads(MAX_THREADS)
        self._deadlines = Deadlines()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def or_else(self, *names: str) -> FunctionTool[P, R]:
        """Return this tool with the names of tools that can stand in for it.

        If it times out or raises `ToolUnavailable`, the failure names the first of them that the run has.
        Holdfast never calls one by itself.
        """
        spec = msgspec.structs.replace(self.spec, stand_ins=names)
        return FunctionTool(self.function, spec, self._signature, self._plan, self._target)

    async def run(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        """Call the function with arguments that passed its schema. Raises what the function raises."""
        if self._target is not None:
            return await self._run_apart(self._target, arguments, context)
        if self._is_async:
            return await self._run_async(arguments, context)
        return await self._run_sync(arguments, context)

    def readable(self) -> tuple[str, ...] | None:
        """Return where a process of its own finds the function and what it imports; None if it needs none."""
        if self._target is None:
            return None
        module = getattr(sys.modules.get(self.function.__module__), "__file__", None)
        home = str(Path.home())
        # A program that lies in the home itself has the home in its path.
        shown = [path for path in map(os.path.realpath, sys.path) if not is_inside(path, home)]
        return (*interpreter(), *shown, _CHILD, *([module] if module else []))

    async def plan(self, arguments: dict[str, Any], context: CallContext) -> Expectation | None:
        """Return the function's own plan; None without one."""
        return self._plan(**self.bound(arguments, context)) if self._plan is not None else None

    async def probe(self, expectation: Expectation, context: CallContext) -> Probed:
        """Return whether the files are as the plan predicted."""
        return await in_thread(lambda: probe(Root(context.workspace), expectation))

    @property
    def deps(self) -> Any:
        """What the deps of a run must be for this function; `Any` if it uses none."""
        return self._signature.deps

    def bound(
        self, arguments: dict[str, Any], context: CallContext, is_cancelled: Callable[[], bool] = bool
    ) -> dict[str, Any]:
        """Return the function's keyword arguments, converted to the annotated types, with the context."""
        signature = self._signature
        fields = signature.shape.__struct_fields__
        known = {name: value for name, value in arguments.items() if name in fields}
        values = _converted(known, signature.shape, self.spec.name)
        keywords = {name: unwrapped(getattr(values, name)) for name in known}
        if len(known) < len(arguments):
            others = {name: value for name, value in arguments.items() if name not in known}
            rest = _converted(others, signature.rest, self.spec.name)
            keywords |= {name: unwrapped(value) for name, value in rest.items()}
        if signature.context_name:
            if not fits(context.deps, signature.deps):
                raise ToolError(
                    f"{self.spec.name} was not run: the program that runs this session did not give it its deps."
                )
            keywords[signature.context_name] = Context(context, is_cancelled)
        return keywords

    async def _run_async(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        call: Callable[..., Any] = self.function
        is_cancelled = _is_cancelled(asyncio.current_task()) if self._signature.context_name else bool
        keywords = self.bound(arguments, context, is_cancelled)
        context.check()
        try:
            return result_of(await call(**keywords))
        except (SystemExit, GeneratorExit) as stop:  # asyncio takes both for its own
            raise raisable(stop) from stop

    async def _run_sync(self, arguments: dict[str, Any], context: CallContext) -> RawResult:
        limit, inner = limited(self._deadlines, context)
        call: Callable[..., Any] = self.function
        is_started = is_over = False
        keywords = self.bound(arguments, _heard_from_a_thread(inner), lambda: is_over)

        def work() -> RawResult:
            context.check()
            return result_of(call(**keywords))

        try:
            with limit:
                await self._threads.slot()
                is_started = True
                return await self._threads.run(work)
        except TimeoutError:
            if not limit.has_passed:
                raise
            if not is_started:
                busy = f"{self.spec.name} was not started: {MAX_THREADS} calls of it are still running."
                return RawResult("timeout", busy)
            text = f"{self.spec.name} did not finish in time. It cannot be stopped and may still be running."
            return RawResult("unknown", text)
        finally:
            is_over = True

    async def _run_apart(
        self, target: dict[str, str], arguments: dict[str, Any], context: CallContext
    ) -> RawResult:
        processes, fences = _capability(context, Processes), _capability(context, Fences)
        with unnamed_file() as request, unnamed_file() as result:
            facts = {"session": context.session, "call_id": context.call_id, "key": context.key}
            facts |= {"workspace": context.workspace}
            request.write(json.dumps({**target, "arguments": arguments, "context": facts}).encode())
            request.seek(0)
            launch = Launch(
                argv=(sys.executable, "-P", _CHILD, str(result.fileno()), *sys.path),
                cwd=str(Path.cwd()),
                key=context.key,
                env=dict(os.environ),
                timeout_s=context.timeout_s,
                idle_s=context.idle_s,
                check=context.check,
                stdin_fd=request.fileno(),
                pass_fds=(result.fileno(),),
            )
            if fences is not None and fences.backend(context.policy.walls) != "unsafe":
                inside = msgspec.structs.replace(
                    launch, cwd=context.workspace, env=clean_environment(os.environ)
                )
                policy, hosts = context.policy, context.policy.allowed_hosts
                try:
                    launch = await fences.around(
                        inside, context.workspace, policy.walls, context.walled, self.readable() or (), hosts
                    )
                except Refused as refusal:
                    return RawResult("error", str(refusal))
            ended = await _ended(processes, launch, context)
            result.seek(0)
            told = result.read()
        if ended.how in ("timeout", "idle"):
            return RawResult("timeout", f"{self.spec.name} did not finish. {over(context)}")
        backend = fences.backend(context.policy.walls) if fences is not None else "unsafe"
        if not told:
            why = f"{self.spec.name} ended without a result ({failure(ended, launch.fence, backend)})."
            return RawResult("error", why, detail=ended.output)
        returned = msgspec.json.decode(told, type=RawResult)
        text = returned.text
        if returned.status == "error":
            raised = msgspec.structs.replace(ended, exit_code=1, output=f"{text}\n{returned.detail}")
            text += f"\n[{why}]" if (why := cause(raised, launch.fence, backend)) else ""
            text += note(raised, launch, context)
        text += aside.told(ended.put_right, context.workspace)
        return msgspec.structs.replace(returned, text=text, requests=ended.requests)


def _converted(values: dict[str, Any], type_: Any, name: str) -> Any:
    """Return plain arguments as the annotated type.

    Raises:
        ToolError: one passed the schema, but is not what its type takes: no date, refused by a validator.
    """
    try:
        return typed(values, type_)
    except msgspec.ValidationError as error:
        raise ToolError(f"{name}: {placed(error)}. Nothing was run. Fix the call and try again.") from error


def _capability(context: CallContext, kind: type[T]) -> T | None:
    """Return what a runtime offers; None where there is no runtime."""
    with suppress(LookupError):
        return context.get(kind)
    return None


async def _ended(processes: Processes | None, launch: Launch, context: CallContext) -> Ended:
    """Run a process to its end."""
    if processes is not None:
        return await processes.run(launch, context.on_output, redactor_of(context))
    alone = Processes()
    try:
        return await alone.run(launch, context.on_output, redactor_of(context))
    finally:
        await alone.aclose()


def _is_cancelled(task: asyncio.Task[Any] | None) -> Callable[[], bool]:
    return lambda: task is None or task.cancelling() > 0 or task.done()


def _heard_from_a_thread(context: CallContext) -> CallContext:
    """The context, with an output function that any thread may call."""
    loop = asyncio.get_running_loop()

    def on_output(text: str) -> None:
        loop.call_soon_threadsafe(context.on_output, text)

    return msgspec.structs.replace(context, on_output=on_output)


def _target(function: Callable[..., object]) -> dict[str, str]:
    """Return how another process finds the function: by its module, or by the program's file."""
    name, module = function.__qualname__, function.__module__
    if "<" in name:
        raise TypeError(f'{name}: isolation="process" needs a function at the top of a module')
    file = getattr(sys.modules.get("__main__"), "__file__", None) if module == "__main__" else ""
    if file is None:
        raise TypeError(f'{name}: isolation="process" needs a function in a file that can be imported')
    return {"module": module, "file": str(Path(file).resolve()) if file else "", "name": name}
