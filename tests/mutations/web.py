"""Lines with a promise about what leaves for the web, and what comes from it. Joined in `table`."""

from __future__ import annotations

from tests.mutations.bench import Mutation

WEB = (
    Mutation(
        "the addresses of a name are not judged before one is used",
        "tools/egress.py",
        "        self.judge(addresses, port)\n",
        "",
        "tests/tools/test_egress.py",
    ),
    Mutation(
        "a literal address is not judged when something connects to it",
        "tools/egress.py",
        "        self._guard.judge([str(address)], int(port))\n",
        "",
        "tests/tools/test_egress.py::test_an_address_that_the_gate_let_through_is_judged_again_at_the_socket",
    ),
    Mutation(
        "a redirect does not pass the gate of addresses",
        "tools/egress.py",
        "problem = url_problem(request.url, reach.allowed)",
        "problem = None",
        "tests/tools/test_egress.py",
    ),
    Mutation(
        "an address inside an IPv6 address is not seen",
        "policy/addresses.py",
        "any(map(is_special, (plain, *_inside(plain))))",
        "is_special(plain)",
        "tests/policy/test_addresses.py",
    ),
    Mutation(
        "a body is decompressed without a limit",
        "tools/egress.py",
        "return self._inflate.decompress(chunk, most)",
        "return self._inflate.decompress(chunk)",
        "tests/tools/test_egress.py::test_a_bomb_is_never_in_memory",
    ),
    Mutation(
        "a driver whose lease is over sends a request",
        "tools/egress.py",
        "            self._guard.reach.check()\n",
        "            pass\n",
        "tests/tools/test_egress.py::test_a_driver_whose_lease_is_over_sends_nothing",
    ),
    Mutation(
        "credentials go along to another origin",
        "tools/egress.py",
        "if name.lower() in _KEPT_ABROAD}",
        "}",
        "tests/tools/test_http_request.py",
    ),
    Mutation(
        "a request that changes something is repeated at another origin",
        "tools/egress.py",
        "if new != old and (method not in _SAFE or body is not None):",
        "if False:",
        "tests/tools/test_http_request.py",
    ),
    Mutation(
        "a header may contain another request",
        "tools/http_request.py",
        "if not _VALUE.fullmatch(value):",
        "if False:",
        "tests/tools/test_http_request.py",
    ),
    Mutation(
        "a request that changes something runs again after a crash",
        "tools/facts.py",
        'return "rerun" if _only_reads(_declared(spec, values)["method"]) else spec.on_interrupt',
        'return "rerun" if spec.effect == "network" else spec.on_interrupt',
        "tests/tools/test_http_request.py",
    ),
    Mutation(
        "a cache never forgets",
        "tools/cache.py",
        "if put_ms <= limit_ms]",
        "if put_ms < 0]",
        "tests/tools/test_cache.py tests/tools/test_web_search.py",
    ),
    Mutation(
        "an engine that fails ends the search",
        "tools/web_search.py",
        "                continue\n",
        "                break\n",
        "tests/tools/test_web_search.py",
    ),
)
