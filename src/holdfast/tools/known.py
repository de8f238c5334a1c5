"""Remembers what reading calls returned, so that the same answer to the same call says that nothing has changed.

The call runs again each time: what it reads may have been changed from outside. `pages` does the same for files, and
reads nothing where their times say enough.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from msgspec.structs import replace

from holdfast.protocol.ports import CallContext, RawResult

MOST_KNOWN = 64
"""How many answers are remembered, for all sessions of a process."""


class Known:
    """The digests of the last answers, by session and call."""

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[str, ...], bytes] = OrderedDict()

    def marked(self, result: RawResult, context: CallContext, *call: str) -> RawResult:
        """Return the result, marked if the session had the same one from the same call. `call`: what tells calls of
        one tool apart, in one spelling."""
        if result.status != "ok":
            return result
        key = (context.session, context.workspace, *call)
        digest = hashlib.sha256(result.text.encode("utf-8", "surrogatepass")).digest()
        is_known = self._digests.pop(key, None) == digest
        self._digests[key] = digest
        if len(self._digests) > MOST_KNOWN:
            self._digests.popitem(last=False)
        return replace(result, is_known=is_known)
