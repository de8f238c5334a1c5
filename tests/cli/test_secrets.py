"""Stored secrets through the whole program: set by a command, sent to their hosts, and shown to nobody."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import resource
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, tool
from holdfast.access.sealing import KEY_FILE_VARIABLE, KEY_VARIABLE
from holdfast.access.store import FILE, SecretStore
from holdfast.access.stored import StoredSecrets
from holdfast.app import App, open_app
from holdfast.cli.edge import LOG_FILE, tell_bug
from holdfast.config.load import load_only
from holdfast.config.paths import Home
from holdfast.errors import SecretsSealed, UsageError
from holdfast.protocol.fence import Finding
from holdfast.redact import Redactor
from holdfast.sandbox import bubblewrap, landlock
from holdfast.testing.model_server import ModelServer, Reply
from tests.cli.conftest import Finished, Holdfast
from tests.cli.processes import Cli, calls, says
from tests.tools.web_server import Heard, response, web_server

KEY = "5e" * 32
VALUE = "tulip-" + "under-9-moons"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, {KEY_VARIABLE: KEY})


def home_with(folder: Path, value: str = VALUE, name: str = "MINE") -> Home:
    SecretStore(folder, {KEY_VARIABLE: KEY}).set(name, value, 1_700_000_000_000)
    return Home(folder, folder / "config.toml")


def bytes_of(*folders: Path) -> bytes:
    """The content of every file, with the names of all."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return b"\n".join(
        [*(str(path).encode() for path in paths), *(p.read_bytes() for p in paths if p.is_file())]
    )


@pytest.mark.requirement("S7", "A4")
async def test_a_secret_reaches_its_host_and_is_in_no_byte_elsewhere(cli: Cli) -> None:
    assert (await asyncio.to_thread(cli, "secret", "set", "MINE", stdin=f"{VALUE}\n")).code == 0

    async def echo(heard: Heard, writer: asyncio.StreamWriter) -> None:
        text = heard.headers.get("authorization", "none")
        encoded = base64.b64encode(text.encode()).decode()
        writer.write(response(json.dumps({"said": text, "in": encoded}), "application/json"))
        await writer.drain()

    async with web_server() as server, web_server() as other:
        server.answers["/"] = other.answers["/"] = echo
        server.redirect("/away", other.url("/"))
        mine, hosts = f'"127.0.0.1:{server.port}"', f'"127.0.0.1:{server.port}", "127.0.0.1:{other.port}"'
        cli.configure(f"network.allow = [{hosts}]\n[secrets.MINE]\nhosts = [{mine}]\n")

        def sends(url: str, **more: Any) -> dict[str, Any]:
            return calls("http_request", method="GET", url=url, **more)

        sending = [
            sends(server.url("/"), auth="MINE"),
            sends(server.url("/away"), auth="MINE"),
            sends(other.url("/"), auth="MINE"),
            sends(server.url("/"), headers={"Authorization": f"Bearer {VALUE}"}),
        ]
        script = cli.model(
            calls("shell", command="env; cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n'"),
            calls("write_file", path="a.txt", content=VALUE),
            # At once: after the first answer of a stranger, each would be asked about.
            {"tool_calls": [each for one in sending for each in one["tool_calls"]]},
            says(f"It is {VALUE}."),
        )
        task = f"Use {VALUE} well."
        done = await asyncio.to_thread(cli, "run", task, "-m", script, "--autonomy", "full", "--stream-json")
        got = [heard.headers.get("authorization") for heard in (*server.heard, *other.heard)]
    assert (done.code, got) == (0, [f"Bearer {VALUE}", f"Bearer {VALUE}", None])
    Path(script.removeprefix("script:")).unlink()
    shown = [done, *(cli("show", "last", *more) for more in ((), ("--tools",), ("--events", "--json")))]
    shown += [cli("show", "last", "--request", str(number)) for number in range(1, 5)]
    everything = bytes_of(cli.folder) + "".join(each.out + each.err for each in shown).encode()
    for form in (VALUE, base64.b64encode(f"Bearer {VALUE}".encode()).decode(), VALUE.encode().hex(), KEY):
        assert form.encode() not in everything
    assert b"Use [redacted:known] well." in everything
    assert everything.count(b"contain the value of the secret MINE") >= 2
    assert b"Nothing was sent. The secret MINE is only for" in everything


@pytest.mark.requirement("S7")
async def test_a_provider_takes_its_key_from_the_store_before_a_variable(tmp_path: Path) -> None:
    home = home_with(tmp_path / "home")
    async with ModelServer([Reply(text="Hi.", repeat=True)]) as server:
        said = {"base_url": server.openai_url, "api_key_secret": "MINE", "api_key_env": "OTHER"}
        cli = Cli(tmp_path, {KEY_VARIABLE: KEY, "OTHER": "not-this-one-1234"})
        cli.configure(
            "[providers.openai]\n" + "".join(f"{key} = {json.dumps(each)}\n" for key, each in said.items())
        )
        done = await asyncio.to_thread(cli, "run", "x", "-m", "openai:gpt-5.5", "--json")
        assert (done.code, server.requests[0].headers["authorization"]) == (0, f"Bearer {VALUE}")
    assert VALUE.encode() not in bytes_of(home.folder)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"secrets": {"MINE": {"hosts": ["api.openai.com"]}}}, "may not be sent to openai"),
        ({"secrets": {"MINE": {"hosts": ["127.0.0.1:9"]}}}, ""),
        ({"providers": {"openai": {"api_key_secret": "LOST"}}}, "There is no secret LOST"),
    ],
)
async def test_the_key_of_a_provider_goes_only_to_the_hosts_of_its_secret(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    config = {"providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "api_key_secret": "MINE"}}} | more
    environ = {KEY_VARIABLE: KEY, "OPENAI_API_KEY": "not-this-one-1234"}
    async with open_app(load_only(config), home_with(tmp_path), environ=environ) as app:
        if not said:
            assert await app.resolve("openai:x")
            return
        with pytest.raises(UsageError, match=said) as caught:
            await app.resolve("openai:x")
    assert caught.value.hint


async def _looked(app: App, workspace: Path) -> None:
    """What the runtime does before it masks a text."""
    reading = app.ports.secret_files(str(workspace))
    if reading is not None:
        await reading


@pytest.mark.requirement("S7")
async def test_a_running_process_knows_what_another_one_stores_before_it_masks_the_next_text(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home", tmp_path / "home" / "config.toml")
    async with open_app(load_only({}), home, environ={KEY_VARIABLE: KEY}) as app:
        assert app.redact(f"It is {VALUE}.") == f"It is {VALUE}."
        home_with(home.folder)
        await _looked(app, tmp_path)
        assert app.ports.redact(f"It is {VALUE}.") == "It is [redacted:known]."
        assert (app.redact.known_in(VALUE), app.stored.value("MINE")) == ("MINE", VALUE)
        SecretStore(home.folder, {}).remove("MINE")
        await _looked(app, tmp_path)
        assert app.redact.known_in(VALUE) == "MINE", "it was secret, and may be in texts"
        with pytest.raises(UsageError, match="There is no secret MINE"):
            app.stored.value("MINE")


@pytest.mark.requirement("S7")
async def test_a_running_process_that_cannot_read_a_new_secret_stores_nothing_more(tmp_path: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, [calls("look_up"), says(f"It is {VALUE}.")])))

    @tool
    def look_up() -> str:
        """Return what somebody stores as a secret at this moment."""
        home_with(home)
        return f"It is {VALUE}."

    async with Agent(model=f"script:{script}", tools=[look_up], home=home) as agent:
        with pytest.raises(SecretsSealed, match="their key is missing"):
            await agent.run("Look it up.")
    assert VALUE.encode() not in bytes_of(home)


@pytest.mark.requirement("S7")
def test_a_run_that_cannot_know_the_secrets_does_not_start(cli: Cli) -> None:
    home_with(cli.home)
    script = cli.model(says("Hi."))
    for key, code, said in (
        ("6f" * 32, 2, "The key does not fit"),
        ("", 2, "their key is missing"),
        (KEY, 0, ""),
    ):
        cli.environ[KEY_VARIABLE] = key
        before = (cli.home / FILE).read_bytes()
        done = cli("run", "x", "-m", script, "--json")
        assert (done.code, (cli.home / FILE).read_bytes()) == (code, before)
        assert said in done.err
    (cli.home / FILE).write_bytes(b"{")
    assert cli("run", "x", "-m", script).code == 9


USES = """
echo "$API_TOKEN"
cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'
curl -sSi -H "Authorization: Bearer $API_TOKEN" {mine} | tee echoed.txt
curl -sSi -H "Authorization: Bearer of-somebody-else" {mine}
curl -sSi -H "Authorization: Bearer $API_TOKEN" {other}
"""


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("mode", ["bubblewrap", "landlock"])
async def test_a_command_in_the_sandbox_uses_a_secret_and_never_has_it(cli: Cli, mode: str) -> None:
    if isinstance(made := {"bubblewrap": bubblewrap, "landlock": landlock}[mode].make(), Finding):
        pytest.skip(made.fault)
    home_with(cli.home)
    cli.environ["API_TOKEN"] = VALUE

    async def echo(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(response(f"Got {heard.headers.get('authorization', 'none')}.", "text/plain"))
        await writer.drain()

    async with web_server() as server, web_server() as other:
        server.answers["/"] = other.answers["/"] = echo
        mine, others = (f'"127.0.0.1:{each.port}"' for each in (server, other))
        cli.configure(
            f'sandbox.mode = "{mode}"\nnetwork.allow = [{mine}, {others}]\n'
            f'[secrets.MINE]\nhosts = [{mine}]\nenv = "API_TOKEN"\n'
            '[hooks.look]\non = ["before_tool"]\n'
            'command = ["sh", "-c", \'echo "$API_TOKEN" >> hooked.txt; echo {}\']\n'
        )
        (cli.workspace / "use.sh").write_text(USES.format(mine=server.url("/"), other=other.url("/")))
        uses = calls("shell", command="bash use.sh")
        script = cli.model({"tool_calls": uses["tool_calls"] * 2}, says("Done."))
        done = await asyncio.to_thread(cli, "run", "x", "-m", script, "--autonomy", "full", "--json")
        got = [heard.headers.get("authorization") for heard in server.heard]
    shown = [cli("show", "last", *more).out for more in (("--tools", "--json"), ("--events", "--json"))]
    assert (done.code, got, other.heard) == (0, [f"Bearer {VALUE}", None] * 2, [])
    assert (
        VALUE.encode()
        not in bytes_of(cli.home, cli.workspace) + "".join([*shown, done.out, done.err]).encode()
    )
    texts = [json.loads(line)["text"] for line in shown[0].splitlines()]
    marks = {line for text in texts for line in text.splitlines() if line.startswith("holdfast-placeholder-")}
    assert len(marks) == 2, "a new one for each command"
    hooked = (cli.workspace / "hooked.txt").read_text().split()
    assert len({*hooked, *marks}) == 4, "and for each hook"
    assert all(mark.startswith("holdfast-placeholder-") for mark in hooked)
    assert all("Got none." in text and "placeholder of the secret MINE only goes" in text for text in texts)
    assert (cli.workspace / "echoed.txt").read_text().endswith(f"Got Bearer {'*' * len(VALUE)}.")


# --- the commands ---------------------------------------------------------------------------------


def given(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, stdin: str, *arguments: str) -> Finished:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    return holdfast("secret", *arguments)


def test_secrets_are_set_listed_and_removed(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = given(holdfast, monkeypatch, f"{VALUE}\r\n", "set", "MY.KEY")
    assert (done.code, VALUE in done.out + done.err) == (0, False)
    assert '[secrets."MY.KEY"]' in done.out
    home = tmp_path / "no-home"
    (home / "config.toml").write_text('[secrets."MY.KEY"]\nhosts = ["a.example", "*.b.example"]\n')
    monkeypatch.delenv(KEY_VARIABLE)
    (row,) = holdfast("secret", "list", "--json").rows
    assert [*row] == ["name", "hosts", "set_at"]
    assert (row["name"], row["hosts"], row["set_at"][-1]) == ("MY.KEY", ["a.example", "*.b.example"], "Z")
    assert "a.example, *.b.example" in holdfast("secret", "list").out
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert holdfast("secret", "remove", "MY.KEY").code == 0
    gone = holdfast("secret", "remove", "MY.KEY")
    assert (gone.code, "secret list`" in gone.err) == (2, True)


@pytest.mark.requirement("S7")
@pytest.mark.parametrize(
    ("stdin", "arguments"),
    [("", ["A"]), ("\n", ["A"]), ("short", ["A"]), (f"{VALUE}\nmore\n", ["A"]), (VALUE, ["A", VALUE]),
     (VALUE, ["a b"]), (VALUE, ["A" * 65]), (VALUE * 900, ["A"])],
)  # fmt: skip
def test_what_is_no_name_or_value_is_refused_and_not_repeated(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stdin: str, arguments: list[str]
) -> None:
    done = given(holdfast, monkeypatch, stdin, "set", *arguments)
    assert done.code == 2
    assert VALUE not in done.out + done.err
    assert not (tmp_path / "no-home" / FILE).exists()


def test_a_person_types_the_value_and_does_not_see_it(cli: Cli) -> None:
    with cli.terminal("secret", "set", "MINE") as screen:
        screen.until("Value of MINE")
        screen.type(f"{VALUE}\n")
        screen.until("stored: MINE")
        assert VALUE not in screen.screen
    assert SecretStore(cli.home, {KEY_VARIABLE: KEY}).values() == {"MINE": VALUE}


def test_a_process_that_has_secrets_leaves_no_core_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        StoredSecrets(tmp_path, {}, Redactor())
        assert resource.getrlimit(resource.RLIMIT_CORE) == (before[1], before[1]), "nothing is stored"
        StoredSecrets(home_with(tmp_path).folder, {KEY_VARIABLE: KEY}, Redactor())
        assert resource.getrlimit(resource.RLIMIT_CORE)[0] in (0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def test_a_command_that_drives_a_session_leaves_no_core_file(cli: Cli) -> None:
    cli.configure('sandbox.mode = "unsafe"')
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        script = cli.model(calls("shell", command="grep core /proc/$PPID/limits"), says("Done."))
        assert cli("run", "x", "-m", script, "--autonomy", "full").code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    (row,) = [json.loads(line) for line in cli("show", "last", "--tools", "--json").out.splitlines()]
    assert row["text"].split()[4] == "1"


def test_the_log_of_a_bug_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_with(tmp_path / "home")
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert tell_bug(["run", "--home", str(home.folder)], ValueError(f"no {VALUE} here")) == 1
    log = (home.folder / "log" / LOG_FILE).read_text()
    assert "no [redacted:known] here" in log


@pytest.mark.parametrize("way", ["set again", "removed", "unreadable"])
def test_the_log_of_a_bug_has_no_secret_that_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    old = f"{VALUE}-{way.replace(' ', '-')}"
    home = home_with(tmp_path / "home", old)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    StoredSecrets(home.folder, {KEY_VARIABLE: KEY}, Redactor())
    if way == "set again":
        home_with(tmp_path / "home", "another-" + "value-42")
    elif way == "removed":
        SecretStore(home.folder, {}).remove("MINE")
    else:
        monkeypatch.setenv(KEY_VARIABLE, "6f" * 32)
    encoded = base64.b64encode(old.encode()).decode()
    assert tell_bug(["run", "--home", str(home.folder)], ValueError(f"no {old} and {encoded} here")) == 1
    log = (home.folder / "log" / LOG_FILE).read_text()
    assert (old in log, encoded in log, "no [redacted:known] and" in log) == (False, False, True)


def test_nothing_is_stored_while_the_configuration_has_a_mistake(cli: Cli) -> None:
    cli.configure("[secrets.MINE]\nhost = 3\n")
    done = cli("secret", "set", "MINE", stdin=f"{VALUE}\n")
    assert (done.code, "stored" in done.out, (cli.home / FILE).exists()) == (2, False, False)
    cli.configure("")
    assert cli("secret", "set", "MINE", stdin=f"{VALUE}\n").code == 0


def test_doctor_closes_the_home_to_others(holdfast: Holdfast, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "no-home", tmp_path / "elsewhere"
    home_with(home)
    elsewhere.write_text("x")
    elsewhere.chmod(0o644)
    (home / "link").symlink_to(elsewhere)
    (home / "trust").mkdir(mode=0o755)
    (home / FILE).chmod(0o664)
    home.chmod(0o755)
    (found,) = [row for row in holdfast("doctor", "--json").rows if row["id"] == "home"]
    assert (found["severity"], "doctor --fix" in found["hint"]) == ("fault", True)
    (closed,) = [row for row in holdfast("doctor", "--json", "--fix").rows if row["id"] == "home"]
    assert closed["severity"] == "ok"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "trust", home / FILE, elsewhere)]
    assert modes == [0o700, 0o700, 0o600, 0o644]


def test_doctor_says_that_the_key_lies_where_commands_work(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace, elsewhere = tmp_path / "ws", tmp_path / "elsewhere"
    for folder in (workspace, elsewhere):
        folder.mkdir()
        (folder / "mykey").write_text(f"{KEY}\n")
        (folder / "mykey").chmod(0o600)
    (elsewhere / "link").symlink_to(workspace / "mykey")
    monkeypatch.chdir(workspace)
    found = []
    for path in ("mykey", str(elsewhere / "mykey"), str(elsewhere / "link")):
        monkeypatch.setenv(KEY_FILE_VARIABLE, path)
        rows = [row for row in holdfast("doctor", "--json").rows if row["id"] == "secrets"]
        found.append([row["message"] for row in rows if row["severity"] == "warning"])
    told = "the key file {} lies where commands work"
    assert found == [[told.format(workspace / "mykey")], [], [told.format(elsewhere / "link")]]


def test_doctor_says_where_the_key_is_and_which_secret_is_missing(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "no-home"
    home_with(home)
    home.chmod(0o700)
    (home / "config.toml").write_text('[secrets.LOST]\nhosts = ["a.example"]\n')
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    found = [row for row in holdfast("doctor", "--json").rows if row["id"] == "secrets"]
    assert [row["severity"] for row in found] == ["ok", "warning"]
    assert "the key is in the environment" in found[0]["message"]
    assert "`holdfast secret set LOST`" in found[1]["hint"]
    monkeypatch.setenv(KEY_VARIABLE, "6f" * 32)
    (wrong,) = [row for row in holdfast("doctor", "--json").rows if row["id"] == "secrets"]
    assert (wrong["severity"], "does not fit" in wrong["message"]) == ("fault", True)
