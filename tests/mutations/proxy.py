"""Lines with a promise about what leaves a sandbox through the proxy. Joined in `table`."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_PROXY = "tests/sandbox/test_proxy.py"
_HEADS = "tests/sandbox/test_proxy_heads.py"
_EXCHANGE = "sandbox/proxy_exchange.py"
_READING = "sandbox/proxy_heads.py"
_BODIES = "sandbox/proxy_bodies.py"
_SECRETS = "tests/sandbox/test_proxy_secrets.py"
_HIDING = "sandbox/proxy_secrets.py"

PROXY = (
    Mutation(
        "the proxy connects to hosts that are not listed",
        _EXCHANGE,
        "found = judged(head.url, self._reach.hosts)",
        "found = target_of(head.url)",
        _PROXY,
    ),
    Mutation(
        "the proxy connects wherever a listed name leads",
        _EXCHANGE,
        "        if problem := address_refusal(",
        "        if problem := False and address_refusal(",
        _PROXY,
    ),
    Mutation(
        "the proxy imports what a command could have written",
        "sandbox/proxy.py",
        '"-S", _CHILD, *folders())',
        '"-S", _CHILD, *sys.path)',
        "tests/sandbox/test_ways_out.py::test_the_proxy_imports_nothing_that_a_command_could_have_written",
    ),
    Mutation(
        "a request may name another host in its header",
        _EXCHANGE,
        "        if names_another(head, found):",
        "        if False:",
        _PROXY,
    ),
    Mutation(
        "a request may have two lengths",
        _READING,
        "if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):",
        "if not _LENGTH.fullmatch(lengths[0]):",
        _HEADS,
    ),
    Mutation(
        "a request may have chunks and a length",
        _READING,
        'if lengths or codings != ["chunked"] or minor == 0:',
        'if codings != ["chunked"] or minor == 0:',
        _HEADS,
    ),
    Mutation(
        "what follows a body goes to the server",
        _BODIES,
        "            part = data[: self._left]\n",
        "            part = data\n",
        _HEADS,
    ),
    Mutation(
        "a chunk may be written in several ways",
        _BODIES,
        "(_STRICT if self._is_strict else _LOOSE).fullmatch(said)",
        "(_STRICT if self._is_strict else _LOOSE).match(said)",
        _HEADS,
    ),
    Mutation(
        "the proxy shows the beginning of a value before it knows the rest",
        _HIDING,
        "max(len(text) - self._kept, 0))",
        "len(text))",
        _SECRETS,
    ),
    Mutation(
        "the proxy shows what it held back when a response breaks off",
        _EXCHANGE,
        '                raise _Stopped("failed", 502, "The server broke off.")\n',
        "                break\n",
        _SECRETS,
    ),
    Mutation(
        "the proxy does not look into answers to requests without a secret",
        _HIDING,
        "return replace(head, headers=tuple(headers)), tuple(at_home)",
        "return replace(head, headers=tuple(headers)), tuple(going)",
        _SECRETS,
    ),
    Mutation(
        "a program may use somebody else's account where there is no TLS",
        _HIDING,
        "mine = [each for each in at_home if",
        "mine = [each for each in going if",
        _SECRETS,
    ),
    Mutation(
        "a program may use somebody else's account beside a placeholder",
        _HIDING,
        "if is_alone or value == stand_in.said else",
        "if True else",
        _SECRETS,
    ),
    Mutation(
        "the host of a secret may answer in a form in which nobody finds it",
        _READING,
        '        raise Unreadable(502, "The server compressed',
        '        Unreadable(502, "The server compressed',
        _SECRETS,
    ),
    Mutation(
        "the proxy takes a call for its end when it has no place for its files",
        "sandbox/proxy_calls.py",
        "        if fds is None:\n",
        "        if not fds or len(fds) != 2:\n",
        _PROXY,
    ),
    Mutation(
        "the driver takes a busy proxy for a dead one",
        "sandbox/proxy.py",
        "error.errno not in _BUSY or loop.time() - began_s > _PATIENCE_S",
        "True",
        "tests/sandbox/test_proxy_driver.py",
    ),
    Mutation(
        "the proxy tells a part of an address, which nobody can mask",
        _EXCHANGE,
        "        if len(where) > URL_MAX_CHARS:",
        "        if len(where) > URL_MAX_CHARS and (where := where[:500]) == '':",
        f"{_PROXY}::test_an_address_is_told_whole_or_not_at_all",
    ),
    Mutation(
        "a header of a response is cut before it is masked",
        "tools/http_request.py",
        "redact(visible(value)).split()",
        "visible(value).split()",
        "tests/tools/test_credentials.py",
    ),
    Mutation(
        "the title of a page is cut before it is masked",
        "tools/web_search.py",
        "redact(_line(hit.title))[:",
        "_line(hit.title)[:",
        "tests/tools/test_web_search.py::test_a_title_is_masked_before_it_is_cut",
    ),
    Mutation(
        "a server may announce its response for ever",
        _EXCHANGE,
        "        for _ in range(_MAX_ANNOUNCED):",
        "        for _ in range(10_000):",
        f"{_PROXY}::test_a_server_that_announces_a_response_without_end_is_said_to_fail",
    ),
    Mutation(
        "a program that is always ready holds up all other calls",
        _EXCHANGE,
        "dropped = await self._client.receive(_CHUNK_BYTES)\n                await asyncio.sleep(0)\n",
        "dropped = await self._client.receive(_CHUNK_BYTES)\n",
        f"{_PROXY}::test_a_program_that_is_always_ready_lets_others_have_their_turn",
    ),
    Mutation(
        "what git printed is cut before it is masked",
        "tools/git.py",
        "redact(ended.output).strip()",
        "ended.output.strip()",
        "tests/tools/test_cut_texts.py::test_what_git_printed_is_masked_before_it_is_cut",
    ),
    Mutation(
        "what a hook wrote about its failure is cut before it is masked",
        "extensions/hooks.py",
        "self._redact(error.said).strip()",
        "error.said.strip()",
        "tests/extensions/test_hooks_of_calls.py::test_what_a_failed_hook_wrote_is_masked_before_it_is_cut",
    ),
    Mutation(
        "one call may ask for as many names at once as it likes",
        "sandbox/proxy_calls.py",
        "asyncio.Semaphore(_LOOKUPS_OF_A_CALL)",
        "asyncio.Semaphore(100)",
        f"{_PROXY}::test_names_that_nobody_resolves_hold_up_only_the_call_that_asks_for_them",
    ),
    Mutation(
        "a head may be as long as it likes",
        _EXCHANGE,
        "                    if len(data) > MAX_HEAD_BYTES:\n",
        "                    if False:\n",
        f"{_PROXY}::test_a_head_that_is_too_long_is_refused",
    ),
    Mutation(
        "a call may hold as many connections as it likes",
        "sandbox/proxy_calls.py",
        "self._own_places = asyncio.Semaphore(most)",
        "self._own_places = asyncio.Semaphore(10 * most)",
        f"{_PROXY}::test_many_connections_wait_for_each_other_and_not_for_another_call",
    ),
    Mutation(
        "as much goes through as a program likes",
        _EXCHANGE,
        "if self._sent + self._received > self._limits.max_bytes:",
        "if False:",
        f"{_PROXY}::test_no_more_than_the_limit_goes_through",
    ),
    Mutation(
        "a command that nobody approved reaches hosts after untrusted text",
        "policy/reaching.py",
        "    if taint.untrusted is not None and not is_approved(decisions):",
        "    if False:",
        "tests/policy/test_reaching.py",
    ),
    Mutation(
        "a grant lets a command reach hosts after untrusted text",
        "policy/reaching.py",
        " and not grant_in(decisions)",
        "",
        "tests/policy/test_reaching.py",
    ),
    Mutation(
        "a command that runs because it has no network has one",
        "policy/reaching.py",
        " or any(each.rule in (SANDBOXED, CUT) for each in decisions)",
        "",
        "tests/policy/test_reaching.py",
    ),
    Mutation(
        "what runs in the background keeps its network after untrusted text",
        "tools/dispatcher.py",
        "            self._background.cut(proposal.session)\n",
        "            pass\n",
        "tests/tools/test_walled_tools.py::"
        "test_untrusted_text_cuts_off_what_runs_in_the_background_unless_a_person_approved_it",
    ),
    Mutation(
        "a command is cut off although another gate asks about it",
        "policy/reaching.py",
        "    if is_asked or any(",
        "    if any(",
        "tests/policy/test_reaching.py",
    ),
    Mutation(
        "a command runs without a question after untrusted text where no sandbox cuts it off",
        "policy/reaching.py",
        ' or facts.policy.walls.backend == "unsafe":',
        ":",
        "tests/policy/test_reaching.py",
    ),
    Mutation(
        "a call reaches hosts although its intent records no network",
        "tools/fencing.py",
        "        reached = () if is_cut else hosts\n",
        "        reached = hosts\n",
        "tests/tools/test_fencing.py::test_a_call_reaches_hosts_only_if_its_intent_records_a_network",
    ),
    Mutation(
        "the blob of a call's requests is not kept",
        "protocol/blobs.py",
        "        if result.traffic is not None and result.traffic.blob:\n",
        "        if False:\n",
        "tests/protocol/test_traffic.py",
    ),
)
