"""A `cd` leads into a folder that is there, so what follows is judged in that folder alone."""

from __future__ import annotations

import itertools

import pytest

from tests.growth import TIMES, is_in_line, least_s
from tests.policy.reference import Reference

pytestmark = pytest.mark.requirement("C12")


@pytest.fixture
def tree(reference: Reference) -> Reference:
    (reference.workspace / "sub" / "deep").mkdir()
    (reference.workspace / "around").symlink_to("src")
    (reference.workspace / "sub" / "deep" / "up").symlink_to("../../src")
    return reference


@pytest.mark.parametrize(
    "text",
    [
        "cd src; ls; cd ..",
        "cd src; ls; cd ..; cd sub; ls; cd ..",
        "; ".join(["cd src; ls; cd .."] * 30),
        " && ".join(["cd src && ls && cd .."] * 30),
        "cd sub/deep; ls ../..; cd ../../src; ls",
        "cd sub; cd deep; cd ../..; cat README.md",
        "cd src || exit 1; ls; cd ..",
        'cd src; for f in *.py; do wc -l "$f"; done; cd ..',
        "if [ -d src ]; then cd src; ls; cd ..; fi",
    ],
)
async def test_the_way_back_out_of_a_folder_is_no_way_out_of_the_workspace(
    tree: Reference, text: str
) -> None:
    found = await tree.verdict("command", text)
    assert (found.verdict, found.rule) == ("allow", "proved"), found.reason


@pytest.mark.parametrize("text", ["pytest; cd sub; ls; cd ..", "cd sub; git commit -m x; cd ../src; ls"])
async def test_other_programs_leave_the_folders_there(tree: Reference, text: str) -> None:
    assert (await tree.verdict("command", text, "full")).verdict == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "cd new; make; cd ..; ls",
        "mkdir new; cd new; touch x; cd ..; ls",
        "mkdir -p new; cd new; cmake ..; make",
        "git checkout other; cd src; cat ../README.md",
        "rm -rf src; cd src; cat ../README.md",
        "cd src; rm -rf $X; cmake ..; cd ..; ls",
        "if [ -d new ]; then cd new; ls; cd ..; fi; ls",
        "mkdir new out; cd new; ls ../out; touch ../out/a; cat ../out/a",
        "cd new; ls ../*.md",
        "cd /ws/src; make; cd ..; ls",
        "cd /ws/; cd new; ls ..",
        "bash -c 'mkdir new; cd new; cat ../README.md'",
    ],
)
async def test_what_is_outside_only_if_a_move_fails_is_a_doubt(tree: Reference, text: str) -> None:
    found = await tree.verdict("command", text, "supervised")
    assert found.verdict == "ask" or found.rule == "sandboxed", found.reason
    assert (await tree.verdict("command", text, "full")).verdict == "allow"


async def test_a_person_reads_that_a_move_may_fail(tree: Reference) -> None:
    found = await tree.verdict("command", "mkdir new; cd new; echo x > ../b.txt")
    assert found.verdict == "ask"
    assert "../b.txt is outside of the workspace if a `cd` before it fails." in found.reason


@pytest.mark.parametrize(
    "text",
    [
        "cd nope; cat ../ws2/a.txt",
        "cd README.md; cat ../a.txt",
        "cd link_out; cat ../a.txt",
        "cd around; cat ../README.md",
        "cd src; cat /etc/passwd",
        "cd /ws2/; ls .",
        "cd /ws/link_out; cat ../a.txt",
        "cd nope; cat ../../ws2/a.txt",
        "cd nope; echo x > ../ws2/b.txt",
        "cd ../ws2; cd ../ws; cat ../ws2/a.txt",
        "cd src; cat ../../ws2/a.txt",
        "cd src; cd ..; cat ../ws2/a.txt",
        "cd README.md; cat ../ws2/a.txt",
        "cd around; cat ../../ws2/a.txt",
        "cd sub/deep/up; cd -P ..; cat ../ws2/a.txt",
        "cd link_out; cat ../ws2/a.txt",
        "cd src > nope/x; cat ../ws2/a.txt",
        "UID=1 cd src; cat ../ws2/a.txt",
        "CDPATH=..; cd src; cat ../ws2/a.txt",
        "rm -rf src; cd src; cat ../ws2/a.txt",
        "rm -rf sub; cd sub/deep; cat ../../ws2/a.txt",
        "rm -rf $X; cd src; cat ../ws2/a.txt",
        "rm -rf s*; cd src; cat ../ws2/a.txt",
        "mv src y; cd src; cat ../ws2/a.txt",
        "chmod 0 src; cd src; cat ../ws2/a.txt",
        "git checkout other; cd src; cat ../ws2/a.txt",
        "git clean -fdx; cd src; cat ../ws2/a.txt",
        "cd src & cat ../ws2/a.txt",
        "cd src | cat ../ws2/a.txt",
        "bash -r -c 'cd src; cat ../ws2/a.txt'",
    ],
)
async def test_a_way_that_may_not_be_taken_leads_nowhere(tree: Reference, text: str) -> None:
    assert (await tree.verdict("command", text, "full")).verdict == "deny"


@pytest.mark.parametrize(
    "text",
    ["echo x > link_out/../new", "cat link_out/../*.txt", "mkdir sub/away/../new", "cat link_out/../*/a"],
)
async def test_after_a_link_two_dots_are_the_folder_above_what_it_leads_to(
    tree: Reference, text: str
) -> None:
    (tree.workspace / "sub" / "away").symlink_to("../../ws2")
    assert (await tree.verdict("command", text, "full")).verdict == "deny"


@pytest.mark.parametrize("text", ["mkdir new; echo x > new/../b.txt", "cat sub/../*.md", "cat new/../*.md"])
async def test_two_dots_after_a_folder_or_after_nothing_stay_in_the_workspace(
    tree: Reference, text: str
) -> None:
    assert (await tree.verdict("command", text)).rule == "proved"


async def test_a_folder_that_nobody_may_enter_does_not_count(
    tree: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may enter every folder
    assert (await tree.verdict("command", "cd src; cat ../ws2/a.txt", "full")).verdict == "deny"


async def test_the_cost_of_moves_grows_with_their_number(tree: Reference) -> None:
    numbers = itertools.count()

    async def cost_s(moves: int) -> float:
        text = "; ".join(["cd src; ls; cd .."] * moves)
        return await least_s(lambda: tree.verdict("command", f"{text}; echo {next(numbers)}"))

    assert is_in_line(await cost_s(10), await cost_s(10 * TIMES))
