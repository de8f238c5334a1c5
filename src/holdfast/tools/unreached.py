"""What a command could not reach from its sandbox, in words for the model, and what a person could allow.

`sandbox.proxy` has the requests. `policy.reaching` decides whether a command has a network at all.
"""

from __future__ import annotations

from holdfast.protocol.counts import counted
from holdfast.protocol.fence import Launch
from holdfast.protocol.ports import CallContext
from holdfast.protocol.traffic import shortened
from holdfast.sandbox.process import Ended
from holdfast.tools.web import redactor_of
from holdfast.tools.within import has_said

_SHOWN = 4
_NO_NETWORK = (
    r"could not resolve|name resolution|name or service not known|network is unreachable|EAI_AGAIN|ENOTFOUND|"
    r"nodename nor servname|no address associated|failed to lookup address|no such host|"
    r"failed to connect to (?!localhost\b|127\.|\[?::1)"
)
"""What programs say that find no network."""
_CUT = (
    "this command had no network: the session has read untrusted text, and nobody approved the command. A person is "
    "asked about a command that names the host"
)
_UNASKED = (
    "this command had no network, because nobody approved it. A person is asked about it, and can give it one, with "
    'a rule like ask = ["shell(PROGRAM *)"] in [policy]'
)
_MISSED = {
    "refused": "refused by the proxy",
    "cut off": "cut off by the proxy",
    "failed": "failed in the proxy",
}
_CLOSED = "commands have no network here. A person can allow hosts with [network] allow"


def note(ended: Ended, launch: Launch, context: CallContext) -> str:
    """Return what the network of a command refused it, as the last lines of its result; empty if nothing."""
    if launch.fence is None:
        return ""
    if launch.fence.network == "none":
        # `pip install x | tail` succeeds.
        may_have_failed = ended.exit_code or "|" in launch.argv[-1]
        if not may_have_failed or not has_said(ended, _NO_NETWORK):
            return ""
        if not context.policy.allowed_hosts:
            return f"\n[{_CLOSED}]"
        return f"\n[{_UNASKED if context.policy.sandboxed == 'allow' else _CUT}]"
    # A program sees only that the proxy did not do what it asked for, and not why.
    missed = [each for each in ended.requests.exchanges if each.verdict in _MISSED and each.why]
    told = list(dict.fromkeys((_MISSED[each.verdict], f"{each.what}: {each.why}") for each in missed))
    more = [f"[{counted(len(told) - _SHOWN, 'more request')} did not succeed]"] if len(told) > _SHOWN else []
    redact = redactor_of(context)
    lines = [f"[{how}: {shortened(redact(each))}]" for how, each in told[:_SHOWN]]
    return "".join(f"\n{line}" for line in (*lines, *more))
