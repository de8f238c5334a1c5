"""Finds out whether commands reach the proxy on this machine: one asks it for a host that no list has."""

from __future__ import annotations

import os
import shutil
import sys

from holdfast.errors import SandboxUnavailable
from holdfast.protocol.fence import Fence, Launch, Sandbox
from holdfast.sandbox.process import Processes
from holdfast.sandbox.proxy import PORT
from holdfast.sandbox.work_folder import work_folder

_HOST = "holdfast.invalid"
"""Nobody can have such a name."""
_TIMEOUT_S = 20.0
_SHOWN_CHARS = 200
_ASK = f"""
exec 3<> /dev/tcp/127.0.0.1/{PORT} && printf 'CONNECT {_HOST}:443 HTTP/1.1\\r\\n\\r\\n' >&3 && head -n 1 <&3
"""


async def attempt(sandbox: Sandbox) -> str:
    """Return what is wrong with the way to the proxy, as a sentence; empty if a request came and was refused."""
    bash = shutil.which("bash")
    if bash is None:
        return "It could not be tried: bash is not installed."
    processes = Processes(sandbox)
    with work_folder("holdfast-probe-") as folder:
        try:
            ended = await processes.run(_launch(bash, folder), lambda _: None)
        except OSError as error:
            return f"It could not be tried: {error.strerror or error}."
        except SandboxUnavailable as error:
            return error.message
        finally:
            await processes.aclose()
    asked = [(each.where, each.verdict) for each in ended.requests.exchanges]
    if ended.output.startswith("HTTP/1.1 403 ") and asked == [(f"{_HOST}:443", "refused")]:
        return ""
    said = " ".join(ended.output.split())[-_SHOWN_CHARS:] or f"exit code {ended.exit_code}"
    return f"A command in the sandbox did not get an answer of the proxy: {said}"


def _launch(bash: str, folder: str) -> Launch:
    fence = Fence(writable=(os.path.realpath(folder),), hosts=("other.invalid",))
    environ, key = {"PATH": os.defpath}, f"probe-proxy-{os.getpid()}"
    argv, check = (bash, "-c", _ASK), lambda: sys.maxsize
    return Launch(argv, fence.writable[0], key, environ, _TIMEOUT_S, _TIMEOUT_S, check, fence=fence)
