"""What a command could not reach from its sandbox, in words for the model, and what a person could allow.

`sandbox.proxy` has the requests. `policy.reaching` decides whether a command has a network at all.
"""

from __future__ import annotations

from holdfast.protocol.counts import counted
from holdfast.protocol.fence import Fence, Launch
from holdfast.protocol.ports import CallContext
from holdfast.protocol.settings import Policy
from holdfast.protocol.traffic import shortened
from holdfast.sandbox.process import Ended
from holdfast.tools.web import redactor_of
from holdfast.tools.within import has_no_network, has_said, is_barred

_SHOWN = 4
_NO_NETWORK = (
    r"could not resolve|name resolution|name or service not known|network is unreachable|EAI_AGAIN|ENOTFOUND|"
    r"nodename nor servname|no address associated|failed to lookup address|no such host|"
    r"failed to connect to (?!localhost\b|127\.|\[?::1)"
)
"""What programs say that find no network."""
_NO_SERVER = r"connection refused|ECONNREFUSED|(?:could not|couldn't) connect to server"
"""What programs say that find no server: there may be one outside, which listens on an address of this machine."""
_OWN_ONLY = "without one, only a server answers that the command starts itself"
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
        why = cut_off(ended, launch.fence, context.policy) if may_have_failed else ""
        return f"\n[{why}]" if why else ""
    # A program sees only that the proxy did not do what it asked for, and not why.
    missed = [each for each in ended.requests.exchanges if each.verdict in _MISSED and each.why]
    told = list(dict.fromkeys((_MISSED[each.verdict], f"{each.what}: {each.why}") for each in missed))
    more = [f"[{counted(len(told) - _SHOWN, 'more request')} did not succeed]"] if len(told) > _SHOWN else []
    redact = redactor_of(context)
    lines = [f"[{how}: {shortened(redact(each))}]" for how, each in told[:_SHOWN]]
    return "".join(f"\n{line}" for line in (*lines, *more))


def cut_off(ended: Ended, fence: Fence | None, policy: Policy) -> str:
    """Return why a command had no network, if what it said shows that it needed one; empty otherwise."""
    if not has_no_network(fence):
        return ""
    why = _CLOSED
    if policy.allowed_hosts:
        why = _UNASKED if policy.sandboxed == "allow" else _CUT
    if has_said(ended, _NO_NETWORK) or is_barred(ended):
        return why
    return f"{why}; {_OWN_ONLY}" if has_said(ended, _NO_SERVER) else ""
