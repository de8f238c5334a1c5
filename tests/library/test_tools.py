"""Tools in whole runs: what their functions take and return, and what is recorded of their failures."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest

from holdfast import Agent, ToolError, tool
from holdfast.context.requests import attached, body_of, requests
from holdfast.protocol.events import Record, Responded, ToolCallFinished, ToolCallRefused, ToolCallStarted
from holdfast.protocol.messages import calls_of
from holdfast.protocol.ports import Tool
from holdfast.protocol.rows import Verified
from holdfast.runtime.enclosing import contents_of
from holdfast.testing.model_replies import ReplyCall
from holdfast.testing.model_server import ModelServer, Reply
from tests.library.test_masked_calls import recorded, the
from tests.library.test_secrets import FREE, stored

LOOKS = "Tr0ub4dor" + "-and-3"


class Unit(enum.Enum):
    METRE = "m"
    MILE = "mi"


@dataclasses.dataclass
class Place:
    name: Annotated[str, "What people call it."]
    at: tuple[float, float] = (0.0, 0.0)


class Stop(pydantic.BaseModel):
    place: Place
    arrives: datetime
    nights: int = pydantic.Field(default=1, ge=1, description="How long to stay.")


class Trip(pydantic.BaseModel):
    stops: list[Stop]

    @pydantic.field_validator("stops")
    @classmethod
    def _at_least_one(cls, stops: list[Stop]) -> list[Stop]:
        if not stops:
            raise ValueError("a trip needs a stop")
        return stops


@tool(effect="read")
def plan(
    trip: Trip,
    start: datetime,
    notes: Path,
    unit: Unit = Unit.METRE,
    days: Annotated[int, "The most days."] = 7,
    also: Trip | str = "",
) -> dict[str, Any]:
    """Plan a trip."""
    kinds = [type(each).__name__ for each in (trip, trip.stops[0].place, start, notes, unit, days, also)]
    return {"kinds": kinds, "trip": trip, "notes": notes, "unit": unit, "start": start}


STOP = {"place": {"name": "Bath"}, "arrives": "2026-05-01T10:00:00Z"}
PLAIN = {"trip": {"stops": [STOP]}, "start": "2026-05-01T08:00:00+02:00", "notes": "a/b.txt"}


async def called(folder: Path, function: Tool, arguments: dict[str, Any] | str, **said: Any) -> list[Record]:
    """What was recorded of a run whose model makes this call and then says Done."""
    call = {"tool_calls": [{"name": function.spec.name, "arguments": arguments}]}
    model = folder / "model.jsonl"
    model.write_text("\n".join(map(json.dumps, [call, {"text": "Done."}])))
    async with Agent(model=f"script:{model}", tools=[function], home=folder / "home", **said) as agent:
        await agent.run("Go on.", session="cli:it")
        return await recorded(agent)


async def test_parameters_and_results_have_the_types_that_python_programs_use(tmp_path: Path) -> None:
    result = the(ToolCallFinished, await called(tmp_path, plan, PLAIN)).result
    assert result.status == "ok", result.text
    told = json.loads(result.text)
    assert told["kinds"] == ["Trip", "Place", "datetime", type(tmp_path).__name__, "Unit", "int", "str"]
    assert told["trip"]["stops"][0]["place"] == {"name": "Bath", "at": [0.0, 0.0]}
    assert (told["notes"], told["unit"], told["start"]) == ("a/b.txt", "m", "2026-05-01T08:00:00+02:00")


def test_the_schema_of_a_model_has_its_definitions_at_the_root_and_its_descriptions() -> None:
    schema = plan.spec.parameters
    properties, definitions = schema["properties"], schema["$defs"]
    assert properties["trip"]["properties"]["stops"]["items"] == {"$ref": "#/$defs/Stop"}
    assert definitions["Stop"]["properties"]["nights"]["description"] == "How long to stay."
    assert properties["days"] == {"type": "integer", "description": "The most days.", "default": 7}
    assert properties["start"]["format"] == "date-time"
    assert properties["notes"] == {"type": "string"}
    assert properties["unit"]["default"] == "m"
    assert "$defs" not in json.dumps([properties, *definitions.values()]).replace("#/$defs/", "")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trip": {"stops": []}}, "Value error, a trip needs a stop"),
        ({"start": "soon"}, "plan: `start`: Invalid RFC3339 encoded datetime. Nothing"),
    ],
)
async def test_what_passes_the_schema_and_not_its_type_is_told_and_not_run(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    result = the(ToolCallFinished, await called(tmp_path, plan, {**PLAIN, **changed})).result
    assert result.status == "error"
    assert words in result.text
    assert "Nothing was run" in result.text
    assert "pydantic.dev" not in result.text


async def test_an_integer_may_be_written_as_a_whole_number(tmp_path: Path) -> None:
    result = the(
        ToolCallFinished, await called(tmp_path, plan, json.dumps(PLAIN)[:-1] + ', "days": 3.0}')
    ).result
    assert result.status == "ok", result.text


def google(width: int, height: int) -> None:
    """Draw
    a box.
    Args:
        width (int): How wide,
            in cells.
        height: How high.

    Returns:
        nothing: at all
    """


def numpy(width: int, height: int) -> None:
    """Draw
    a box.

    More words.

    Parameters
    ----------
    width : int, optional
        How wide,
        in cells.
    height
        How high.

    Returns
    -------
    nothing : None
        At all.
    """


def sphinx(width: int, height: int) -> None:
    """Draw
    a box.
    :param int width: How wide,
        in cells.
    :param height: How high.
    :type height: int
    :returns: nothing
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_a_docstring_describes_the_parameters_in_any_of_three_styles(function: Callable[..., None]) -> None:
    spec = tool(effect="read")(function).spec
    assert spec.description == "Draw a box."
    assert {name: each["description"] for name, each in spec.parameters["properties"].items()} == {
        "width": "How wide, in cells.",
        "height": "How high.",
    }


# --- conversions --------------------------------------------------------------------------------


@tool(effect="write")
def save(entry: dict[str, Any], copies: int = 1) -> str:
    """Save an entry."""
    return f"{copies} x {entry}"


async def test_what_the_model_wrote_stays_provable_beside_what_ran(tmp_path: Path) -> None:
    written = '{"copies": "2", "entry": "{\\"a\\": 1}"}'
    records = await called(tmp_path, save, written)
    (asked,) = [c for r in records if isinstance(r.event, Responded) for c in calls_of(r.event.parts)]
    assert asked.arguments == written
    assert the(ToolCallStarted, records).arguments == '{"copies":2,"entry":{"a":1}}'
    assert the(ToolCallFinished, records).result.text == "2 x {'a': 1}"


async def test_a_conversion_that_shows_a_hidden_secret_does_not_run(tmp_path: Path) -> None:
    hidden = "".join(f"\\u{ord(character):04x}" for character in "password")
    inner = f'{{"{hidden}": "{LOOKS}"}}'
    records = await called(tmp_path, save, json.dumps({"entry": inner}))
    refused = the(ToolCallRefused, records)
    assert "looks like a secret" in refused.failure.message
    assert not [record for record in records if isinstance(record.event, ToolCallStarted)]
    assert f'"password": "{LOOKS}"' not in stored(tmp_path / "home")


async def test_a_masked_call_runs_converted_and_its_copy_is_masked(tmp_path: Path) -> None:
    records = await called(
        tmp_path, save, json.dumps({"entry": json.dumps({"password": LOOKS}), "copies": "3"})
    )
    assert the(ToolCallFinished, records).result.status == "ok"
    assert the(ToolCallFinished, records).result.text.startswith("3 x ")
    assert LOOKS not in stored(tmp_path / "home")


# --- failures -----------------------------------------------------------------------------------


def failing(error: Exception) -> Tool:
    @tool(effect="read")
    def fetch(name: str) -> str:
        """Fetch it."""
        raise error

    return fetch


async def test_the_model_sees_the_text_of_a_tool_error_redacted(tmp_path: Path) -> None:
    told = ToolError(f"There is no such item with password = '{LOOKS}'; use list_items.")
    result = the(ToolCallFinished, await called(tmp_path, failing(told), {"name": "a"})).result
    assert result.status == "error"
    assert result.text.startswith("There is no such item with password = ")
    assert result.text.endswith("; use list_items.")
    assert LOOKS not in stored(tmp_path / "home")


@pytest.mark.requirement("C15")
async def test_any_other_exception_is_a_bug_whose_text_only_the_journal_has(tmp_path: Path) -> None:
    records = await called(tmp_path, failing(ValueError("the cause, inside")), {"name": "a"})
    result = the(ToolCallFinished, records).result
    assert result.text == "fetch failed with ValueError. This is a bug of the tool, not of the call."
    assert "ValueError: the cause, inside" in result.failure.detail
    assert "in fetch" in result.failure.detail


@pytest.mark.parametrize("chars", range(1_925, 2_015, 15))
async def test_no_part_of_a_secret_is_left_where_a_traceback_was_cut(tmp_path: Path, chars: int) -> None:
    key = "sk-" + "proj-" + "pQ9wTxu4Fg7Lm2Zc8Rb5Hn3K"
    error = ValueError(f"{'x ' * 4_000}{key} {'y ' * (chars // 2)}")
    detail = the(
        ToolCallFinished, await called(tmp_path, failing(error), {"name": "a"})
    ).result.failure.detail
    assert not any(key[at : at + 8] in detail for at in range(len(key) - 7))


class Opaque:
    pass


@dataclasses.dataclass
class Spot:
    x: float


PNG_AND_NAN = [b"words", float("nan")]


@pytest.mark.parametrize(
    "value",
    [
        Opaque(),
        {"deep": [Opaque()]},
        {Opaque(): 1},
        b"\x00\xff",
        float,
        float("nan"),
        {"deep": (None, [-float("inf")])},
        Spot(float("inf")),
        PNG_AND_NAN,
    ],
    ids=["object", "inside", "key", "bytes", "type", "nan", "inf", "struct", "part"],
)
async def test_a_result_that_is_no_json_is_an_error(tmp_path: Path, value: object) -> None:
    @tool(effect="read")
    def give() -> object:
        """Give."""
        return value

    result = the(ToolCallFinished, await called(tmp_path, give, {})).result
    assert result.status == "error"
    assert result.text.startswith("It ran, but")
    assert "0x" not in result.text


# --- bytes and images -----------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) + b"\0\0\0\0IEND\xaeB`\x82"
PDF = b"%PDF-1.7\n/Type /Page\n%%EOF\n" + bytes(99)


class Drawing:
    """Shows itself as the images of common libraries do."""

    def _repr_png_(self) -> bytes:
        return PNG


@tool(effect="read")
def draw() -> list[object]:
    """Draw."""
    return ["A house:", Drawing(), {"doors": 1}, PDF, b"in words"]


@tool(effect="read", isolation="process")
def draw_apart() -> bytes:
    """Draw elsewhere."""
    return PNG


async def requests_of(folder: Path, wire: str, function: Tool) -> tuple[list[dict[str, Any]], list[Record]]:
    """The messages of the second request of a run whose model calls a function, and the records."""
    calls = (ReplyCall(function.spec.name, "{}"),)
    async with ModelServer([Reply(tool_calls=calls), Reply(text="Done.")]) as server:
        base_url = server.openai_url if wire == "openai" else server.url
        config = {"providers": {wire: {"base_url": base_url}}, "catalog": {f"{wire}:m": FREE}}
        async with Agent(model=f"{wire}:m", home=folder / "home", config=config, tools=[function]) as agent:
            assert (await agent.run("Go on.", "cli:it")).status == "done"
            return json.loads(server.requests[1].body)["messages"], await recorded(agent)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none-" + "needed")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_images_and_pdfs_of_a_result_are_parts_of_the_next_request(tmp_path: Path, wire: str) -> None:
    messages, records = await requests_of(tmp_path, wire, draw)
    png, pdf = (base64.b64encode(content).decode() for content in (PNG, PDF))
    places = (f"[image/png, {len(PNG)} bytes: attached]", f"[application/pdf, {len(PDF)} bytes: attached]")
    text = f'A house:\n{places[0]}\n{{"doors":1}}\n{places[1]}\nin words'
    heads = [f"[tool: draw t1.c1, {len(content)} bytes]" for content in (PNG, PDF)]
    result = the(ToolCallFinished, records).result
    assert (result.status, result.text) == ("ok", text)
    assert [each.media_type for each in result.attachments] == ["image/png", "application/pdf"]
    if wire == "openai":
        told, shown = messages[-2], messages[-1]["content"]
        assert (told["role"], told["content"]) == ("tool", text)
        assert shown[1]["image_url"]["url"] == f"data:image/png;base64,{png}"
        assert shown[3]["file"] == {
            "filename": "document.pdf",
            "file_data": f"data:application/pdf;base64,{pdf}",
        }
    else:
        told, *shown = messages[-1]["content"]
        assert (told["type"], told["content"]) == ("tool_result", text)
        assert shown[1]["source"] == {"type": "base64", "media_type": "image/png", "data": png}
        assert shown[3]["source"]["data"] == pdf
    assert [shown[0]["text"], shown[2]["text"]] == heads


@pytest.mark.usefixtures("keys")
@pytest.mark.requirement("H1")
async def test_pictures_are_stored_once_and_the_requests_come_out_byte_for_byte(tmp_path: Path) -> None:
    _, records = await requests_of(tmp_path, "openai", draw)
    assert base64.b64encode(PNG).decode() not in stored(tmp_path / "home")
    async with Agent(home=tmp_path / "home") as agent:
        store = (await agent._open()).store
        for each in the(ToolCallFinished, records).result.attachments:
            assert await store.blobs.get(each.blob) in (PNG, PDF)
        assert await store.verify() == Verified()
        for sent in requests(records, await contents_of(store.blobs, attached(records))):
            assert body_of(sent, await store.blobs.get(sent.started.request.base))


@pytest.mark.usefixtures("keys")
async def test_a_picture_comes_from_another_process_too(tmp_path: Path) -> None:
    messages, _ = await requests_of(tmp_path, "openai", draw_apart)
    assert messages[-1]["content"][1]["image_url"]["url"].endswith(base64.b64encode(PNG).decode())


@pytest.mark.parametrize(
    "given",
    [b"\x89PNG\r\n\x1a\n" + bytes(5_000_000), [PNG] * 21],
    ids=["large", "many"],
)
async def test_more_than_a_model_reads_is_an_error(tmp_path: Path, given: object) -> None:
    @tool(effect="read")
    def give() -> object:
        """Give."""
        return given

    result = the(ToolCallFinished, await called(tmp_path, give, {})).result
    assert (result.status, result.attachments) == ("error", ())
    assert "at most 20 images or PDFs of 5,000,000 bytes" in result.text


@pytest.mark.parametrize("whole", [PNG, PDF], ids=["png", "pdf"])
async def test_a_picture_or_pdf_that_is_cut_off_is_an_error(tmp_path: Path, whole: bytes) -> None:
    @tool(effect="read")
    def give() -> object:
        """Give."""
        return whole[: len(whole) - 110] if whole == PDF else whole[:-12]

    result = the(ToolCallFinished, await called(tmp_path, give, {})).result
    assert (result.status, result.attachments) == ("error", ())
    assert "no whole header, or no end" in result.text


async def test_a_text_of_bytes_is_redacted_like_any_other(tmp_path: Path) -> None:
    @tool(effect="read")
    def give() -> bytes:
        """Give."""
        return f"password = '{LOOKS}'".encode()

    result = the(ToolCallFinished, await called(tmp_path, give, {})).result
    assert result.status == "ok"
    assert LOOKS not in stored(tmp_path / "home")
