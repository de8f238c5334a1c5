"""Lines with a promise about stored secrets. Joined in `table`."""

from __future__ import annotations

from tests.mutations.bench import Mutation

_STORE = "tests/access/test_store.py"
_PROXY = "tests/sandbox/test_proxy_secrets.py"
_TLS = "tests/sandbox/test_proxy_tls.py"

STORED = (
    Mutation(
        "a value is not bound to its name",
        "access/store.py",
        "[_KIND, _VERSION, store, name, set_at_ms]",
        "[_KIND, _VERSION, store, set_at_ms]",
        f"{_STORE}::test_a_value_opens_in_no_other_place",
    ),
    Mutation(
        "another key is taken",
        "access/store.py",
        "        if not self._fits(content, key):\n",
        "        if False:\n",
        f"{_STORE}::test_another_key_is_told_and_overwrites_nothing",
    ),
    Mutation(
        "the file is written where it is",
        "access/store.py",
        "        new = self._home / NEW\n",
        "        new = self.path\n",
        f"{_STORE}::test_a_writer_that_is_killed_leaves_the_old_value_or_the_new_one",
    ),
    Mutation(
        "two writers do not wait for each other",
        "access/store.py",
        '            while (lock := try_lock(fd)) != "ours":\n',
        '            while (lock := "ours") != "ours":\n',
        f"{_STORE}::test_a_writer_waits_for_another_one",
    ),
    Mutation(
        "a secret goes to any host that a redirect names",
        "access/credentials.py",
        "if credential.goes_to(url) else others",
        "if url else others",
        "tests/tools/test_credentials.py::test_a_redirect_takes_the_secret_to_its_host_alone",
    ),
    Mutation(
        "a secret goes to any host that a call names",
        "tools/http_request.py",
        "        if not is_its_host:\n",
        "        if False:\n",
        "tests/tools/test_credentials.py::test_another_host_gets_nothing_at_all",
    ),
    Mutation(
        "a secret goes over a connection that anybody reads",
        "policy/urls.py",
        "if not is_plain or allowed_host_of(host).port",
        "if True",
        "tests/access/test_credentials.py",
    ),
    Mutation(
        "the end of a body that was cut shows a part of a secret",
        "tools/http_request.py",
        "    if response.is_cut:\n",
        "    if False:\n",
        "tests/tools/test_credentials.py::test_what_a_server_echoes_is_masked_also_where_the_body_is_cut",
    ),
    Mutation(
        "a stored secret is not masked",
        "access/stored.py",
        "        self._redact.know(values | self._store.known_keys())\n",
        "",
        "tests/cli/test_secrets.py::test_a_running_process_knows_what_another_one_stores_before_it_masks_the_next_text",
    ),
    Mutation(
        "a running process does not learn what is stored",
        "app.py",
        "        self.stored.look()\n",
        "",
        "tests/cli/test_secrets.py::test_a_running_process_knows_what_another_one_stores_before_it_masks_the_next_text",
    ),
    Mutation(
        "the error of a value on the command line repeats it",
        "cli/secret.py",
        '"A value does not go on the command line, where other users and the history of the shell see it. "',
        'f"A value does not go on the command line: {context.args}. "',
        "tests/cli/test_secrets.py::test_what_is_no_name_or_value_is_refused_and_not_repeated",
    ),
    Mutation(
        "the proxy puts a secret into requests for any host",
        "sandbox/proxy_secrets.py",
        "if not head.is_tunnel and may_have_secret(each.hosts, head.url)]",
        "if not head.is_tunnel]",
        _PROXY,
    ),
    Mutation(
        "a program uses another account at the host of a secret",
        "sandbox/proxy_secrets.py",
        "        elif not mine or any(each.mark in _plain(value) for each in mine):\n",
        "        else:\n",
        _PROXY,
    ),
    Mutation(
        "a placeholder goes to any host",
        "sandbox/proxy_secrets.py",
        "        if each.mark in text:\n            raise Misplaced(each)\n    if at_home",
        "        pass\n    if at_home",
        _PROXY,
    ),
    Mutation(
        "a program reads a secret that a server echoes",
        "sandbox/proxy_exchange.py",
        "Hiding(each.value for each in known) if known else None",
        "None",
        _PROXY,
    ),
    Mutation(
        "a program reads a secret that a server wrote as PHP writes JSON",
        "redact/spelling.py",
        'ways = [_numbered(char), rf"\\\\{{0,4}}{re.escape(char)}"]',
        "ways = [_numbered(char), re.escape(char)]",
        "tests/redact/test_known.py",
    ),
    Mutation(
        "a program reads a secret in a compressed response",
        "sandbox/whole.py",
        'for name, value in named if name == "content-encoding"]',
        'for name, value in named if name == "no-encoding"]',
        _PROXY,
    ),
    Mutation(
        "the proxy gives a secret to a server that nobody vouches for",
        "sandbox/proxy_tls.py",
        "    return ssl.create_default_context()\n",
        "    return ssl._create_unverified_context()\n",
        _TLS,
    ),
    Mutation(
        "the proxy looks into all TLS",
        "sandbox/proxy_exchange.py",
        "            may_have_secret(each.hosts, url) for each in self.secrets\n",
        "            [True]\n",
        _TLS,
    ),
)
