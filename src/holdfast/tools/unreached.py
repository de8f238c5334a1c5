"""What a command could not reach from its sandbox, in words for the model, and what a person could allow.

`sandbox.proxy` has the requests. `policy.reaching` decides whether a command has a network at all.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.protocol.counts import counted
from holdfast.protocol.fence import Fence, Launch
from holdfast.protocol.ports import CallContext
from holdfast.protocol.settings import Policy
from holdfast.protocol.traffic import shortened
from holdfast.sandbox.process import Ended
from holdfast.tools.web import redactor_of
from holdfast.tools.within import has_no_network, has_said, is_barred

_SHOWN = 4


class _Signs(NamedTuple):
    """What programs say."""

    phrases: str
    codes: str

    @property
    def anywhere(self) -> str:
        """The pattern for the output of a command that failed."""
        return f"{self.phrases}|{self.codes}"

    @property
    def of_a_program(self) -> str:
        """The pattern for a program that failed in a command that succeeded, as in `npm install | tail`: the name of
        the program or error comes first. What a search prints has no blank after the name of a file, and a log begins
        with a time.
        """
        name = r"(?:[\w./\[\]-]{1,60}|caused by|error \d+ \(\w+\)):|npm (?:error|ERR!)"
        begin = rf"^ {{0,8}}(?:(?:{name}) (?! ).{{0,300}}?)?"
        code = rf"(?:getaddrinfo|connect|code:?|errno:?) ['\"]?(?:{self.codes})\b|\((?:{self.codes})\)"
        return f"{begin}(?:{self.phrases})|{code}"


_NO_NETWORK = _Signs(
    r"could not resolve|name resolution|name or service not known|network is unreachable|nodename nor servname|"
    r"no address associated|failed to lookup address|no such host|unable to resolve host address|"
    r"temporary failure resolving|could not translate host name|UnknownHostException|"
    r"failed to connect to (?!localhost\b|127\.|\[?::1)",
    "EAI_AGAIN|ENOTFOUND|ENETUNREACH",
)
"""No network."""
_NO_SERVER = _Signs(
    r"connection refused|(?:could not|couldn't) connect to server|can't connect to (?:\w+ )?server on ",
    "ECONNREFUSED",
)
"""No server: there may be one outside, which listens on an address of this machine."""
_OWN_ONLY = "without one, only a server answers that the command starts itself"
_CUT = (
    "this command had no network: the session has read untrusted text, and nobody approved the command. A person is "
    "asked about a command that names the host, and opens the way to it, through an HTTP proxy"
)
_UNASKED = (
    "this command had no network, because nobody approved it. A person is asked about it, and can give it one, "
    'through an HTTP proxy, with a rule like ask = ["shell(PROGRAM *)"] in [policy]'
)
_MISSED = {
    "refused": "refused by the proxy",
    "cut off": "cut off by the proxy",
    "failed": "failed in the proxy",
}
_CLOSED = (
    "commands have no network here. A person can allow hosts with [network] allow, "
    "for programs that use an HTTP proxy"
)
_PAST = (
    "commands reach the hosts of [network] allow only through the HTTP proxy that HTTPS_PROXY names. A program that "
    "does not use it, like ssh or the client of a database, reaches nothing"
)
_BESIDE = "beside it, only a server answers that the command starts itself"


def note(ended: Ended, launch: Launch, context: CallContext) -> str:
    """Return what the network of a command refused it, as the last lines of its result; empty if nothing."""
    # A program sees only that the proxy did not do what it asked for, and not why.
    missed = [each for each in ended.requests.exchanges if each.verdict in _MISSED and each.why]
    told = list(dict.fromkeys((_MISSED[each.verdict], f"{each.what}: {each.why}") for each in missed))
    more = [f"[{counted(len(told) - _SHOWN, 'more request')} did not succeed]"] if len(told) > _SHOWN else []
    redact = redactor_of(context)
    lines = [f"[{how}: {shortened(redact(each))}]" for how, each in told[:_SHOWN]]
    # Without an address, the proxy may tell why the whole call has no network.
    is_told = any(each.verdict == "failed" and not each.where for each in missed)
    why = "" if is_told else cut_off(ended, launch.fence, context.policy)
    return "".join(f"\n{line}" for line in (*lines, *more, *([f"[{why}]"] if why else ())))


def cut_off(ended: Ended, fence: Fence | None, policy: Policy) -> str:
    """Return why a command had no network, or none beside the proxy, if what it said shows that it needed one; empty
    otherwise.
    """
    if fence is None:
        return ""
    is_server = not (_shows(ended, _NO_NETWORK) or is_barred(ended))
    if is_server and not _shows(ended, _NO_SERVER):
        return ""
    if not has_no_network(fence):
        return f"{_PAST}; {_BESIDE}" if is_server else _PAST
    why = _CLOSED
    if policy.allowed_hosts:
        why = _UNASKED if policy.sandboxed == "allow" else _CUT
    return f"{why}; {_OWN_ONLY}" if is_server else why


def _shows(ended: Ended, signs: _Signs) -> bool:
    return has_said(ended, signs.anywhere if ended.exit_code else signs.of_a_program)
