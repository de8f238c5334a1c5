"""What comes beside the words of a message: stdin, files, and what a person mentions in a chat."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App, open_app
from holdfast.cli import attachments
from holdfast.cli.attachments import MAX_FILES, _file, given, mentioned
from holdfast.config.load import load_only
from holdfast.config.paths import find_home
from holdfast.errors import UsageError
from holdfast.protocol.zone import without_head
from holdfast.testing.model_replies import Reply
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import Cli, says
from tests.edge import nursery

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 4 + b"\0\0\0\0IEND\xaeB`\x82"
PDF = b"%PDF-1.7\n/Type /Pages /Kids [1 0 R]\n/Type /Page\n%%EOF\n"
CONFIG = '[providers.openai]\nbase_url = "{url}/v1"\n[providers.anthropic]\nbase_url = "{url}"\n'
MODELS = ["openai:gpt-5.5", "anthropic:claude-sonnet-5"]
SECRET = "sk-ant-" + "api03-" + "Zk3mQ8" * 14
both_wires = pytest.mark.parametrize("model", MODELS)


def blobs(cli: Cli, content: bytes) -> list[Path]:
    """The files of the home with this content."""
    return [path for path in cli.home.rglob("*") if path.is_file() and path.read_bytes() == content]


async def sent(cli: Cli, *commands: tuple[tuple[str, ...], str]) -> list[bytes]:
    """The requests that a server got from these commands, which all end well."""
    cli.environ |= {"OPENAI_API_KEY": "nobody's key", "ANTHROPIC_API_KEY": "nobody's key"}
    async with ModelServer([Reply(text="Fine.", repeat=True)]) as server:
        cli.configure(CONFIG.format(url=server.url))
        for arguments, stdin in commands:
            ended = await asyncio.to_thread(cli, *arguments, stdin=stdin)
            assert ended.code == 0, ended.err
        return [request.body for request in server.requests]


def parts(body: bytes) -> list[dict[str, Any]]:
    """The parts of the first message of a person, without the time before the words."""
    messages = json.loads(body)["messages"]
    content = next(each["content"] for each in messages if each["role"] == "user")
    found = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{**found[0], "text": without_head(found[0]["text"])}, *found[1:]]


# --- both wires -----------------------------------------------------------------------------------


@pytest.mark.requirement("B1", "C14")
@both_wires
async def test_stdin_is_a_part_of_its_own_under_its_head(cli: Cli, model: str) -> None:
    (body,) = await sent(cli, (("run", "Sum them up.", "-m", model), "one\ntwo\n"))
    assert [part["text"] for part in parts(body)] == ["Sum them up.", "[stdin: 8 bytes]\none\ntwo\n"]


@pytest.mark.requirement("B1")
@both_wires
async def test_files_go_as_each_api_takes_them(cli: Cli, model: str) -> None:
    for name, content in (("a.txt", b"a text"), ("b.png", PNG), ("c.pdf", PDF)):
        (cli.workspace / name).write_bytes(content)
    named = ("--attach", "a.txt", "--attach", "b.png", "--attach", "c.pdf")
    (body,) = await sent(cli, (("run", "Look.", "-m", model, *named), ""))
    found = parts(body)
    texts = [part["text"] for part in found if part["type"] == "text"]
    heads = [f"[file: b.png, {len(PNG)} bytes]", f"[file: c.pdf, {len(PDF)} bytes]"]
    assert texts == ["Look.", "[file: a.txt, 6 bytes]\na text", *heads]
    picture, document = (part for part in found if part["type"] != "text")
    png, pdf = (base64.b64encode(content).decode() for content in (PNG, PDF))
    if model.startswith("openai"):
        assert picture["image_url"]["url"] == f"data:image/png;base64,{png}"
        assert document["file"] == {"filename": "c.pdf", "file_data": f"data:application/pdf;base64,{pdf}"}
    else:
        assert picture == {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": png},
        }
        assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": pdf}


@pytest.mark.requirement("H1", "L8")
@both_wires
async def test_an_attachment_is_stored_once_and_requests_are_told_byte_for_byte(cli: Cli, model: str) -> None:
    (cli.workspace / "b.png").write_bytes(PNG)
    text = "a line of a log\n" * 50
    asked = ("-m", model, "-s", "cli:a", "--attach", "b.png")
    bodies = await sent(
        cli,
        (("run", "Look.", *asked), text),
        (("run", "Again.", *asked), ""),
        (("resume", "cli:a", "More."), ""),
    )
    assert len(blobs(cli, PNG)) == len(blobs(cli, text.encode())) == 1
    for number, body in enumerate(bodies, 1):
        assert cli("show", "cli:a", "--request", str(number)).out.encode() == body
    assert bodies[2].count(base64.b64encode(PNG)) == 2
    assert base64.b64encode(PNG) not in cli("show", "cli:a", "--events", "--json").out.encode()
    shown = cli("show", "cli:a").out
    assert f"[file: b.png, {len(PNG)} bytes]  image/png" in shown
    assert "[stdin: 800 bytes]  text/plain" in shown
    assert cli("fsck").code == 0
    blobs(cli, PNG)[0].unlink()
    assert cli("fsck").code == 1


@pytest.mark.requirement("H1")
async def test_an_exported_session_has_its_attachments(cli: Cli) -> None:
    (cli.workspace / "b.png").write_bytes(PNG)
    task = ("run", "Look.", "-m", MODELS[0], "-s", "cli:a", "--attach", "b.png")
    (body,) = await sent(cli, (task, "a line\n" * 50))
    file, other = str(cli.folder / "whole.jsonl"), str(cli.folder / "other")
    assert cli("export", "cli:a", file).code == 0
    assert cli("--home", other, "import", file).code == 0
    assert cli("--home", other, "show", "cli:a", "--request", "1").out.encode() == body
    assert cli("delete", "cli:a", "--yes").code == 0
    assert not blobs(cli, PNG)


@pytest.mark.requirement("H1")
async def test_after_a_change_of_the_wire_the_attachment_goes_again(cli: Cli) -> None:
    (cli.workspace / "b.png").write_bytes(PNG)
    first, second = MODELS
    bodies = await sent(
        cli,
        (("run", "Look.", "-m", first, "-s", "cli:a", "--attach", "b.png"), ""),
        (("resume", "cli:a", "More.", "-m", second), ""),
    )
    assert [part["type"] for part in parts(bodies[1])] == ["text", "text", "image"]
    for number, body in enumerate(bodies, 1):
        assert cli("show", "cli:a", "--request", str(number)).out.encode() == body


@pytest.mark.requirement("A7", "C7")
async def test_a_text_is_masked_before_it_is_stored_or_sent(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text(f"key = {SECRET}\n")
    task = ("run", "Look.", "-m", MODELS[0], "--attach", "a.txt")
    (body,) = await sent(cli, (task, f"token: {SECRET}\n"))
    assert body.count(b"[redacted:") >= 2
    held = b"".join(path.read_bytes() for path in cli.home.rglob("*") if path.is_file())
    assert b"Zk3mQ8" not in body + held


@pytest.mark.requirement("B2", "C6")
async def test_a_picture_counts_as_what_a_model_sees_and_not_by_its_bytes(cli: Cli) -> None:
    (cli.workspace / "large.png").write_bytes(PNG + bytes(3_000_000))
    (body,) = await sent(cli, (("run", "Look.", "-m", MODELS[1], "--attach", "large.png"), ""))
    assert len(body) > 4_000_000
    (attempt,) = map(json.loads, cli("show", "last", "--requests", "--json").out.splitlines())
    assert 16_000 < attempt["size_bytes"] < 60_000


# --- stdin ----------------------------------------------------------------------------------------


def test_a_dash_makes_stdin_the_task_and_nothing_else(cli: Cli) -> None:
    model = cli.model(says("Fine.", when="^Do it.\n$"))
    assert cli("run", "-", "-m", model, stdin="Do it.\n").out == "Fine.\n"
    twice = cli("run", "-", "--attach", "-", "-m", model, stdin="Do it.\n")
    assert (twice.code, "twice" in twice.err) == (2, True)
    assert cli("chat", "--attach", "-", "-m", model, stdin="Do it.\n").code == 2


def test_attach_dash_waits_for_stdin(cli: Cli) -> None:
    model = cli.model(says("Fine.", when="stdin: 5 bytes"), says("And fine.", when="stdin: 6 bytes"))
    assert cli("run", "go", "--attach", "-", "-m", model, "-s", "cli:a", stdin="12345").code == 0
    assert cli("resume", "cli:a", "go", "--attach", "-", stdin="123456").out == "And fine.\n"


def test_a_file_on_stdin_counts_and_an_empty_one_is_nothing(cli: Cli) -> None:
    model = cli.model(says("One.", when="stdin: 3 bytes"), says("Two.", when="^go$"), name="m")
    for content, said in ((b"abc", "One.\n"), (b"", "Two.\n")):
        (cli.folder / "in").write_bytes(content)
        with (cli.folder / "in").open("rb") as file:
            done = nursery.run(
                ["run", "go", "-m", model, "-s", "cli:a"], stdin=file, text=True, timeout=120,
                cwd=cli.workspace, env=cli._environ(),
            )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, said), done.stderr


@pytest.mark.requirement("A7", "C5")
@pytest.mark.parametrize("name", [".env", "link.txt", "home/config.toml", "/proc/self/environ"])
def test_what_may_not_be_attached_may_not_be_redirected_either(cli: Cli, name: str) -> None:
    model = cli.model(says("Fine.", repeat=True))
    cli.configure("# mine\n")
    (cli.folder / ".env").write_text("A=1")
    (cli.folder / "link.txt").symlink_to(".env")
    for command in (("run", "go"), ("run", "-"), ("run", "go", "--attach", "-"), ("chat",)):
        with (cli.folder / name).open("rb") as file:
            done = nursery.run(
                [*command, "-m", model],
                stdin=file,
                text=True,
                timeout=120,
                cwd=cli.workspace,
                env=cli._environ(),
            )
        assert (done.returncode, done.stdout, "not attached" in done.stderr) == (2, "", True), done.stderr
    assert cli("sessions", "--json").out == ""


@pytest.mark.requirement("B1")
def test_what_is_piped_into_resume_goes_with_its_message(cli: Cli) -> None:
    model = cli.model(says("One."), says("Two.", when="stdin: 5 bytes"), says("Three.", when="^more$"))
    assert cli("run", "go", "-m", model, "-s", "cli:a").code == 0
    assert cli("resume", "cli:a", "look", stdin="12345").out == "Two.\n"
    assert cli("resume", "cli:a", "more", stdin="").out == "Three.\n"


@pytest.mark.requirement("B1")
def test_a_pipe_that_delivers_nothing_is_left_out_with_one_line(cli: Cli) -> None:
    model = cli.model(says("Fine.", when="^go$"))
    outside, inside = os.pipe()
    try:
        done = nursery.run(
            ["run", "go", "-m", model], stdin=outside, text=True,
            timeout=120, cwd=cli.workspace, env=cli._environ(),
        )  # fmt: skip
    finally:
        os.close(outside)
        os.close(inside)
    assert (done.returncode, done.stdout) == (0, "Fine.\n"), done.stderr
    assert done.stderr.count("--attach -") == 1
    assert sum(line.startswith("! ") for line in done.stderr.splitlines()) == 1, "one warning"


def test_too_much_on_stdin_is_refused(cli: Cli) -> None:
    ended = cli("run", "go", "-m", cli.model(says("Fine.")), stdin="x" * 1_000_001)
    assert (ended.code, "larger than 1,000,000 bytes" in ended.err) == (2, True)
    assert cli("sessions", "--json").out == ""


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.requirement("C5", "A7")
def test_what_may_not_be_attached_is_refused_before_a_session_exists(cli: Cli) -> None:
    model = cli.model(says("Fine."))
    cli("sessions")
    cli.home.mkdir(exist_ok=True)
    (cli.home / "config.toml").write_text("")
    os.mkfifo(cli.workspace / "pipe")
    for name, content in {
        ".env": b"A=1", "id_rsa": b"x", "blob.bin": b"\xff\xfe\x00", "nul.txt": b"a\0b",
        "long.txt": b"x" * 1_000_001, "long.png": PNG + bytes(5_000_000),
    }.items():  # fmt: skip
        (cli.workspace / name).write_bytes(content)
    (cli.workspace / "harmless.txt").symlink_to(".env")
    (cli.workspace / "own.txt").symlink_to(cli.home / "config.toml")
    refused = {
        ".env": "secret", "id_rsa": "secret", "harmless.txt": "secret", "own.txt": "Holdfast",
        "pipe": "a pipe", "/dev/zero": "a device", "missing": "does not exist", ".": "a folder",
        "blob.bin": "neither UTF-8 text", "nul.txt": "neither UTF-8 text", "long.txt": "1,000,000",
        "long.png": "5,000,000", "/proc/self/environ": "not a regular file", "/etc/passwd": "secret",
    }  # fmt: skip
    for name, why in refused.items():
        ended = cli("run", "go", "-m", model, "--attach", name)
        assert (ended.code, ended.out) == (2, ""), name
        assert why in ended.err, (name, ended.err)
    assert cli("run", "go", "-m", model, *["--attach", "x"] * (MAX_FILES + 1)).code == 2
    assert cli("resume", "last", "--attach", "long.txt").code == 2
    assert cli("sessions", "--json").out == ""


@pytest.mark.requirement("C6", "B2")
def test_a_task_that_cannot_fit_the_window_is_refused_before_a_session_exists(cli: Cli) -> None:
    (cli.workspace / "log.txt").write_text("word " * 40_000)
    cli.configure('[catalog."script:*"]\ncontext_tokens = 20000\n')
    model = cli.model(says("Fine."), says("Fine."))
    for arguments, stdin in (
        (("run", "go", "--attach", "log.txt"), ""),
        (("run", "go"), "word " * 40_000),
        (("run", "word " * 20_000), ""),
    ):
        ended = cli(*arguments, "-m", model, stdin=stdin)
        assert (ended.code, "too long" in ended.err) == (2, True), ended.err
    assert cli("sessions", "--json").out == ""
    assert not blobs(cli, ("word " * 40_000).encode())
    assert cli("run", "word " * 5_000, "-m", model).code == 0


@pytest.mark.requirement("B2", "C6")
def test_what_a_file_weighs_decides_whether_it_fits_and_not_its_size(cli: Cli) -> None:
    (cli.workspace / "large.png").write_bytes(PNG + bytes(3_000_000))
    (cli.workspace / "long.pdf").write_bytes(PDF + b"/Type /Page\n" * 100)
    cli.configure('[catalog."script:*"]\ncontext_tokens = 60000\n')
    model = cli.model(says("Fine."))
    ended = cli("run", "go", "-m", model, "--attach", "long.pdf")
    assert (ended.code, "too long" in ended.err) == (2, True), ended.err
    assert cli("run", "go", "-m", model, "--attach", "large.png").code == 0


# --- chats ----------------------------------------------------------------------------------------


def test_what_a_chat_attaches_goes_with_the_first_message(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("a text")
    model = cli.model(says("One.", when="(?s)first.*a text"), says("Two.", when="^second$"))
    ended = cli("chat", "-m", model, "--attach", "a.txt", stdin="first\nsecond\n")
    assert (ended.code, ended.out) == (0, "One.\nTwo.\n")


def test_an_at_sign_in_an_argument_or_a_piped_message_is_just_a_sign(cli: Cli) -> None:
    (cli.workspace / "a.txt").write_text("a text")
    model = cli.model(says("One.", when="^read @a.txt$"), says("Two.", when="^read @a.txt$"))
    assert cli("run", "read @a.txt", "-m", model, "-s", "cli:a").code == 0
    assert cli("chat", "-m", model, "-s", "cli:a", stdin="read @a.txt\n").out == "Two.\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with files to mention."""
    folder = tmp_path / "w"
    (folder / "src").mkdir(parents=True)
    for name in ("a.txt", "src/b c.py", ".env"):
        (folder / name).write_text(name)
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


async def in_app(tmp_path: Path) -> App:
    """An app of its own."""
    async with open_app(load_only({}), find_home(str(tmp_path / "home"), {})) as app:
        return app


@pytest.mark.requirement("C5", "C14")
@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("read @a.txt", ["a.txt"]),
        ("(not ann@a.txt) but @a.txt, and @a.txt.", ["a.txt"]),
        ('@"src/b c.py" please', ["src/b c.py"]),
        ("@missing @src @../outside.txt @link.txt @/etc/hosts @", []),
        (f"@{'a' * 300} and @a.txt", ["a.txt"]),
    ],
)
async def test_only_a_file_of_the_workspace_can_be_mentioned(
    tmp_path: Path, workspace: Path, typed: str, names: list[str]
) -> None:
    app = await in_app(tmp_path)
    found = [each.attachment for each in mentioned(app, typed, workspace)]
    assert [each.name for each in found] == names
    assert all((each.origin, each.trust) == ("file", "data") for each in found)


async def test_neither_the_name_nor_the_content_of_a_file_brings_in_what_may_not_be_stored(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await in_app(tmp_path)
    monkeypatch.chdir(workspace)
    name = f"{SECRET}.txt"
    Path(name).write_text(f"a\x07b {SECRET}\n")
    ((attachment, content),) = given(app, [name], b"")
    assert attachment.name == "[redacted:anthropic].txt"
    assert content.decode() == "a\ufffdb [redacted:anthropic]\n"


async def test_a_file_that_became_a_link_after_it_was_mentioned_is_refused(
    tmp_path: Path, workspace: Path
) -> None:
    app = await in_app(tmp_path)
    assert (workspace / "link.txt").is_symlink()
    with pytest.raises(UsageError, match="outside the workspace"):
        _file(app, "link.txt", workspace, str(workspace.resolve()))


@pytest.mark.requirement("A7", "C5")
async def test_a_mentioned_secret_is_refused(tmp_path: Path, workspace: Path) -> None:
    app = await in_app(tmp_path)
    with pytest.raises(UsageError, match="secret"):
        mentioned(app, "read @.env", workspace)
    with pytest.raises(UsageError, match="secret"):
        given(app, [str(workspace / ".env")], b"")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"), (PDF, "application/pdf"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"), ("größe".encode(), "text/plain"), (b"", "text/plain"),
        (b"RIFF\0\0\0\0WAVE", None), (b"\xff\xfe", None), (b"MZ\0", None),
    ],
)  # fmt: skip
def test_the_first_bytes_tell_the_type(content: bytes, kind: str | None) -> None:
    assert attachments.media_type(content) == kind


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        ("image/png", PNG), ("application/pdf", PDF),
        ("image/jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\xff\xc0\0\x11\x08\0\1\0\1\xff\xda\0\xff\xd9"),
        ("image/gif", b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"),
        ("image/webp", b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0/" + bytes(13)),
    ],
)  # fmt: skip
def test_a_file_without_its_header_or_its_end_is_refused(cli: Cli, kind: str, whole: bytes) -> None:
    assert attachments.is_whole(kind, whole)  # type: ignore[arg-type]
    for part in (whole[:10], whole[: len(whole) // 2]):
        assert not attachments.is_whole(kind, part)  # type: ignore[arg-type]
    (cli.workspace / "part").write_bytes(whole[:12] if kind == "image/webp" else whole[:10])
    ended = cli("run", "go", "-m", cli.model(says("Fine.")), "--attach", "part")
    assert (ended.code, "is not whole" in ended.err) == (2, True), ended.err


@pytest.mark.requirement("C15")
async def test_a_refusal_of_a_session_with_a_file_names_the_ways_out(cli: Cli) -> None:
    (cli.workspace / "b.png").write_bytes(PNG)
    cli.environ["OPENAI_API_KEY"] = "nobody's key"
    async with ModelServer(
        [Reply(status=400, message="Bad image."), Reply(text="Fine.", repeat=True)]
    ) as server:
        cli.configure(CONFIG.format(url=server.url))
        task = ("run", "Look.", "-m", MODELS[0], "-s", "cli:a")
        refused = await asyncio.to_thread(cli, *task, "--attach", "b.png")
        (session,) = (each["session"] for each in map(json.loads, cli("sessions", "--json").out.splitlines()))
        assert f"holdfast rewind {session} --to 2" in refused.err
        assert f"holdfast fork {session} --at 2" in refused.err
        assert cli("rewind", session, "--to", "2").code == 0
        ended = await asyncio.to_thread(cli, *task)
        assert (ended.code, ended.out) == (0, "Fine.\n"), ended.err
        assert b"image" not in server.requests[-1].body
