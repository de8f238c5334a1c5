"""Makes text of pages in processes of their own: some are made to take forever. The program is `page_child`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.protocol.fence import Launch
from holdfast.protocol.ports import CallContext
from holdfast.sandbox.process import Processes
from holdfast.sandbox.unnamed import unnamed_file
from holdfast.tools.blocking import in_thread
from holdfast.tools.fencing import own_fence
from holdfast.tools.web import charset_of

if TYPE_CHECKING:
    from holdfast.tools.egress import Response

EXTRACTION_S = 10.0
_LIBRARY = "resiliparse"


class Pages:
    """Reads pages for the tools of one runtime."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def text(self, response: Response, context: CallContext) -> str | None:
        """Return the title and the text of a page; None if they could not be made."""
        return await self._printed("text", response, context)

    async def results(self, response: Response, context: CallContext) -> dict[str, Any] | None:
        """Return the results on the page of a search engine: `{"results": [{"title", "url", "text"}], "says_none"}`;
        None if they could not be found.
        """
        printed = await self._printed("results", response, context)
        found: dict[str, Any] | None = msgspec.json.decode(printed) if printed is not None else None
        return found

    async def _printed(self, wanted: str, response: Response, context: CallContext) -> str | None:
        found = find_spec(_LIBRARY)
        if found is None or found.origin is None:
            return None
        folder = Path(found.origin).parent.parent
        with unnamed_file() as stdin:
            await in_thread(lambda: stdin.write(response.body))
            stdin.seek(0)
            child = str(Path(__file__).with_name("page_child.py"))
            launch = Launch(
                argv=(
                    sys.executable,
                    "-I",
                    "-S",
                    "-X",
                    "utf8",
                    child,
                    str(folder),
                    wanted,
                    charset_of(response),
                ),
                cwd="/",
                key=context.key,
                env={},
                timeout_s=EXTRACTION_S,
                idle_s=EXTRACTION_S,
                check=context.check,
                stdin_fd=stdin.fileno(),
                fence=own_fence(self._processes, child, str(folder)),
            )
            ended = await self._processes.run(launch, lambda _: None)
        return ended.output if ended.how == "exited" and ended.exit_code == 0 else None
