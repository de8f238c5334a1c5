"""Commands that do something else than they seem to. Each of them was once taken for a command that only looks."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from holdfast.policy.programs import ROWS, uses_of
from holdfast.policy.programs_shell import BUILTINS
from holdfast.policy.protected import is_matched
from holdfast.policy.simple import SimpleCommand, Word
from tests.policy.reference import Reference

pytestmark = pytest.mark.requirement("C12")


async def looks(reference: Reference, text: str) -> list[str]:
    return [(await reference.verdict("command", text, each)).verdict for each in ("supervised", "full")]


@pytest.mark.parametrize(
    "text",
    [
        "jobs $(echo -x ./x)",
        "jobs -x ./x",
        "wait $(echo -p x)",
        "wait -p 'a[$(./x)]'",
        'printf "%\'n" PATH; ls',
        "printf '%%%+5n' PATH; ls",
        "read PAGER < a.txt",
        "printf -v GIT_PAGER ./x",
        "read x -p PATH",
        "for PATH in .; do ls; done",
        "for IFS in /; do x=a/b; ls $x; done",
        "select PATH in .; do ls; break; done",
        "declare -l x; x=LINK_OUT/hosts; cat $x",
        "declare -r x=a.txt; cat $x",
        'awk \'BEGIN { SYMTAB["AR" "GV"][1] = "x" }\'',
        "head -5c a.txt",
        "tail -5c a.txt",
        "find src -execdir cat a.txt ';'",
        "cat '['a]*",
    ],
)
async def test_what_seems_to_look_asks(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "x=a.txt; x=/etc/hostname :; cat $x",
        "readonly x=/etc/hostname\nx=/ws/a.txt\ncat $x",
        "export _=a.txt; true /etc/hostname; cat $_",
        "trap 'x=/etc/hostname' DEBUG; x=/ws/a.txt; cat $x",
        "eval 'trap x=/etc/hostname DEBUG'; x=/ws/a.txt; cat $x",
        "x=a:~/b; cat $x",
        "trap 'x=/etc/hostname' DEBUG; for x in /ws/a.txt; do cat $x; done",
    ],
)
async def test_a_variable_is_known_only_if_nothing_else_can_set_it(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "sh -c '[[ a || ./x ]]'",
        "dash -c '[[ a | ./x ]]'",
        "sh -c \"echo \\$'a\\\\'; ./x; #'\"",
        "sh -c 'cp {a,b}.txt'",
        "sh -c 'cd src &>/dev/null && cat a.txt'",
        "sh -c 'export x=$y; ls'",
        "sh -c 'ls 10>new'",
        "sh -c 'eval \"[[ a || ./x ]]\"'",
        "bash -c \"sh -c '[[ a || ./x ]]'\"",
        "sh -c 'x=\\&; eval \"cd src $x> /dev/null && cat a.txt\"'",
        "ls {PATH}>new",
        "cat < a{b,b}.txt",
        "echo x >& '$(./x)'",
        "x='$(./x)'; echo x >& \"$x\"",
        "echo x >& '.gi{t..t}'/x",
        "cat <& '$(./x)'",
        "exec {x}>new",
    ],
)
async def test_what_shells_read_in_different_ways_is_not_understood(reference: Reference, text: str) -> None:
    assert await looks(reference, text) == ["ask", "ask"]


@pytest.mark.parametrize(
    "text",
    ["[ a || ./x ]", "[ a | ./x ]", "[ a & ./x ]", "[ a && b || ./x ]", "if [ a || ./x ]; then :; fi",
     "ls; [ a || ./x ]", '[ "a" || bash -c ./x ]', "[ a || rm -r src ]", "$([ a || ./x ])",
     "f() { [ a || ./x ]; }; f",
     "[ a = b > a.txt ]", "[ a > ~/new ]", "[ a >> .git/new ]", "[ ! a > new ]", "[ -n x -a y > new ]", "[ 3 > 2 ]",
     "while [ 5 > new ]; do break; done", "[ a < a.txt ]", "[ ( a ) ]", "[ a \\\n|| ./x ]", "[ a\n./x ]",
     "[ a; ./x ]",
     "[ a == b;./x ]", "[ a == b|./x ]", "[[ a =~ b;./x ]]", "[[ a == b&./x ]]"],
)  # fmt: skip
async def test_brackets_are_a_command_whose_operators_end_it(reference: Reference, text: str) -> None:
    assert await looks(reference, text) == ["ask", "ask"]


@pytest.mark.parametrize(
    "text",
    ["[ -f a.txt ] || ls", "[ a = b -o -d src ] && ls", "[ ! -f a.txt ]", "[ -n 'x > y' ]", "[[ a || b ]]",
     "[[ a < b ]]",
     "[[ -f a.txt && ! -d src ]]", "[[ a == 'b c' ]]", "[ -n *.md ]", "case a in *.py|'x y') ls;; (b) pwd;; esac"],
)  # fmt: skip
async def test_a_plain_test_runs(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "allow"


@pytest.mark.parametrize(
    "text",
    ["y=(['b[$(./x)]']=1)", "x=([b]=1)", 'x=(["a"]=1)', "x=(['a']=1)", "x=([\\a]=1)", "x=([b+1]=1)", "x=([b]+=1)",
     "x=([$b]=1)", "x=([${b}]=1)", "x=([ b ]=1)", "x=(a [b]=1)", "x=(a\n[b]=1)", "x=(\\\n[b]=1)", "x=([1]=a [b]=1)",
     "x=([$'b[$(./x)]']=1)", "export x=([b]=1)", "x+=([b]=1)", "x=([PATH=0]=1); ls",
     "[ -? ]", "test [-x]v", "test -?"],
)  # fmt: skip
async def test_what_is_counted_out_asks(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "ask"


WAYS = [
    "{}=v; ls", "{}=v ls", "{}+=v; ls", "{}=(v); ls", "{}[0]=v; ls", "for {} in v; do ls; done",
    "for {}; do ls; done",
    "for {} in *; do :; done; ls", "select {} in v; do ls; done", "for (({}=1; 0;)); do ls; done", "(({}=1)); ls",
    "let {}=1; ls", ": $(({}=1)); ls", ": ${{{}:=v}}; ls", ": ${{{}=v}}; ls", ": ${{x[{}=1]}}; ls",
    "x=([{}=1]=1); ls",
    "read {}; ls", "read -r x {}; ls", "read -a {} <<< v; ls", "printf -v {} v; ls", "printf -v{} v; ls",
    "mapfile -t {}; ls", "readarray {}; ls", "getopts a {}; ls", "wait -n -p {}; ls", "coproc {} {{ ls; }}; ls",
    "export {}=v; ls", "export -n {}=v; ls", "declare {}=v; ls", "declare -x {}=v; ls", "typeset {}=v; ls",
    "readonly {}=v; ls", "f() {{ local {}=v; ls; }}; f", "exec {{{}}}>new; ls", "ls {{{}}}< a.txt", "env {}=v ls",
    "command export {}=v; ls", "builtin read {}; ls", "\\export {}=v; ls", "'read' {}; ls", "eval {}=v; ls",
    "bash -c '{}=v; ls'", "bash -c 'for {} in v; do ls; done'", "time {}=v ls", "! {}=v; ls", "{{ {}=v; }}; ls",
    "if {}=v; then ls; fi", "while read {}; do ls; done < a.txt", 'export x "{}=v"; ls', "export x={{a,b}} {}=v; ls",
    "case v in v) {}=v;; esac; ls", "find . -exec env {}=v ls \\;", "trap '{}=v' DEBUG; ls", "x=1 {}=v ls",
    "export {{{},x}}=v; ls", "read {{x,{}}}; ls",
]  # fmt: skip
"""Every way in which a command may set a variable."""
SPECIAL = [
    "PATH", "IFS", "HOME", "ENV", "BASH_ENV", "CDPATH", "PWD", "GIT_DIR", "GIT_EXTERNAL_DIFF", "LD_PRELOAD",
    "PAGER",
    "GLOBIGNORE", "EXECIGNORE", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "TMPDIR", "BASH_ALIASES", "RANDOM",
    "http_proxy",
]  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
async def test_a_variable_that_others_read_is_set_in_no_way_without_a_person(
    reference: Reference, name: str
) -> None:
    texts = (way.format(name) for way in WAYS)
    assert [text for text in texts if (await reference.verdict("command", text)).verdict == "allow"] == []


@pytest.mark.parametrize(
    "text",
    [
        "export x={/etc/hostname,/ws/a.txt}; cat $x",
        "export x={/ws/a.txt,/etc/hostname}; cat $x",
        "command readonly x=/etc/hostname; export x=/ws/a.txt; cat $x",
        "declare -l x; export x=/ws/a.txt; cat $x",
        "$(x) -l y; y=/ws/a.txt; cat $y",
        "export IFS=,; x=a.txt,/etc/hostname; cat $x",
        "read IFS <<< ,; x=a.txt,/etc/hostname; cat $x",
    ],
)
async def test_what_changes_the_next_value_of_a_variable_makes_it_unknown(
    reference: Reference, text: str
) -> None:
    assert (await looks(reference, text))[0] == "ask"


@pytest.mark.parametrize(
    "text",
    ["sh -c 'cat a.txt | head'", "sh -c 'x=$((1+2)); echo $x'", "bash -c '[[ -f a.txt ]] && cat {a.txt,notes.md}'",
     "x=1 ls; echo $x", "printf '100%%n\\n'", "git config --get user.name", "head -c 5 a.txt",
     "ls >& new.txt", "ls 2>&1", "unset LANG", "trap 'cat a.txt' EXIT", "cat .[!e]x",
     "x=([3]=a [4]+=b c *.py); ls"],
)  # fmt: skip
async def test_what_all_shells_read_alike_still_runs(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "git config core.fsmonitor ./x --get",
        "git config core.pager --get",
        "f() { cd .git; }; f; echo x > config",
        "cat .[^a]nv",
        "cat .[[:alpha:]]nv",
        "cat .[[=e=]]nv",
        "cat .e[[:lower:]]v",
        "echo x > .git/[[:alpha:]]ooks/pre-commit",
        "echo x >> .gi{t..t}/config",
        "cat < .en{v..v}",
        "cat a.txt 2> .git/ho{o..o}ks/x",
        "awk '{print}' -v /etc/hostname",
        "awk '{print}' -F /etc/hostname",
    ],
)
async def test_what_seems_to_look_is_denied(reference: Reference, text: str) -> None:
    assert await looks(reference, text) == ["deny", "deny"]


@pytest.mark.parametrize("shell", ["sh -c", "bash -c", "eval", "env bash -c"])
async def test_the_own_folder_of_a_script_is_where_it_runs(reference: Reference, shell: str) -> None:
    assert (await looks(reference, f"cd src && {shell} 'echo x > $PWD/new'"))[0] == "ask"
    assert (await looks(reference, f"cd .git && {shell} 'echo x > $PWD/new'"))[0] == "deny"
    assert (await looks(reference, f"{shell} 'cat $PWD/a.txt'"))[0] == "allow"


async def test_the_folder_above_a_link_is_where_the_link_lies(reference: Reference) -> None:
    (reference.workspace / ".vscode").mkdir()
    (reference.workspace / ".vscode" / "up").symlink_to(reference.workspace / "src" / "deep")
    (reference.workspace / "src" / "deep").mkdir()
    (reference.workspace / "src" / "old").write_text("words\n")
    for text in ("cd .vscode/up/.. && echo x > new", "cd .vscode/up && cd .. && echo x >> old"):
        assert (await looks(reference, text)) == ["deny", "deny"], text
    assert (await looks(reference, "cd src/deep/.. && echo x > new"))[0] == "allow"


async def test_a_copy_of_a_link_asks(reference: Reference) -> None:
    (reference.workspace / "hooks").symlink_to(reference.workspace / ".git" / "hooks")
    for option in ("-P", "-d", "--no-deref"):
        assert (await looks(reference, f"cp {option} hooks new && echo x > new/pre-commit"))[0] == "ask"


async def test_a_trap_runs_in_every_folder_that_the_text_enters(reference: Reference) -> None:
    text = "trap 'echo x > config' EXIT; cd .git"
    assert (await reference.verdict("command", text, "full")).rule == "steering:.git/config"
    inside = "bash -c \"trap 'echo x > config' EXIT; cd .git\""
    assert (await reference.verdict("command", inside, "full")).rule == "steering:.git/config"


# --- searching folders ----------------------------------------------------------------------------


@pytest.fixture
def secrets(reference: Reference) -> Reference:
    """The workspace with two folders that have a secret file, and one with a link."""
    for name in ("d1/.env.local", "d2/.docker/config.json", "d2/id_rsa.txt", "links/plain", "..data/plain"):
        path = reference.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words\n")
    (reference.workspace / "links" / "x").symlink_to(reference.workspace / "a.txt")
    return reference


@pytest.mark.parametrize(
    "text",
    [
        "grep -d recurse x .",
        "grep -drec x d1",
        "grep --directories=recurse x .",
        "grep --dir rec x d1",
        "grep -r --include='*.local' x .",
        "grep -r --include='*.json' x d2",
        "grep -r --include='*.t[x]t' x d2",
        "grep -r --include='*.TXT' x d2",
        "grep -r --exclude='*.md' --include='*.py' x .",
        "grep -r --include='*.py' --include='*.local' x .",
        "rg -g '*.local' x",
        "rg -g '.e*' x",
        "rg --hidden --type-add 'py:.e*' -tpy x",
        "diff d1 d2",
        "diff -u src d1",
        "git diff --no-index src d1",
        "git diff src d1",
    ],
)
async def test_what_reads_all_files_of_a_folder_is_denied_a_secret_one(secrets: Reference, text: str) -> None:
    found = await secrets.verdict("command", text)
    assert (found.verdict, found.rule) == ("deny", "secret-path")


@pytest.mark.parametrize(
    "text",
    ["grep -r --include='*.py' x .", "grep -r --include='*.py' --exclude='*.md' x .", "grep -rn x src",
     "rg -g '*.py' -g '!a*' x", "diff a.txt notes.md", "diff src ..data", "git diff", "git diff main next -- src",
     "git diff --no-index src ..data", "grep -r --include='*.json' x src"],
)  # fmt: skip
async def test_what_reads_no_secret_file_of_a_folder_runs(secrets: Reference, text: str) -> None:
    assert (await secrets.verdict("command", text)).verdict == "allow"


async def test_what_follows_links_in_a_folder_asks(secrets: Reference) -> None:
    assert (await secrets.verdict("command", "diff links src")).verdict == "ask"
    assert (await secrets.verdict("command", "grep -r x links")).verdict == "allow"


@pytest.mark.parametrize(
    "text",
    [
        "git log --format=%G?",
        "git show --pretty='format:%h %+GK'",
        "git log --format %GS",
        "git for-each-ref --format='%(signature:key)'",
    ],
)
async def test_a_format_for_which_git_checks_signatures_asks(reference: Reference, text: str) -> None:
    assert (await reference.verdict("command", text)).verdict == "ask"


@pytest.mark.parametrize(
    "address",
    ["ssh://git@evil.example/x", "git@evil.example:x/y.git", "git://evil.example/x", "git+ssh://evil.example:2222/x",
     "ftp://evil.example/x", "https://evil.example/x"],
)  # fmt: skip
@pytest.mark.parametrize("words", ["clone", "push --force", "fetch", "ls-remote", "remote add x"])
async def test_git_reaches_only_listed_hosts(reference: Reference, words: str, address: str) -> None:
    assert (await reference.verdict("command", f"git {words} {address}", "full")).verdict == "deny"


async def test_git_reaches_a_listed_host_and_its_own_remotes(reference: Reference) -> None:
    checker = reference.checker("full", {"network": {"allow": ["git.example.net:22"]}})
    for words in (
        "push git@git.example.net:x/y main",
        "push origin HEAD:main",
        "clone ssh://git.example.net/x",
    ):
        assert (await checker.subject("command", f"git {words}")).verdict == "allow", words


# --- the table and the programs -------------------------------------------------------------------


def takes_any_words(name: str) -> bool:
    return not uses_of(SimpleCommand((Word(name), Word("x", is_known=False)))).asks


def options_of(name: str) -> Iterator[str]:
    """The options that a builtin or an installed program tells."""
    if name in BUILTINS:
        told = subprocess.run(
            ["bash", "-c", f"help -s -- {name}"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
        for letters in re.findall(r"(?<![\w-])-([A-Za-z]+)", told):
            yield from (f"-{letter}" for letter in letters)
    elif shutil.which(name):
        done = subprocess.run(
            [name, "--help"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        yield from re.findall(r"^ {1,8}(-[A-Za-z])\b", done.stdout, re.MULTILINE)
        yield from re.findall(r"^ {1,8}(?:-., *)?(--[a-z0-9-]+)", done.stdout, re.MULTILINE)


NO_OPTIONS = {"numfmt": {"-M"}, "dirs": {"-N"}, "popd": {"-N"}}
"""Words of the help texts that look like options."""


@pytest.mark.parametrize("name", sorted(filter(takes_any_words, ROWS)))
def test_what_takes_words_that_nobody_knows_has_no_other_options(name: str) -> None:
    row = {each.rstrip("=?") for each in ROWS[name].plain.split()} | {"--help", "--version", "-h", "-V"}
    assert set(options_of(name)) - NO_OPTIONS.get(name, set()) <= row


@pytest.mark.parametrize(
    ("name", "pattern", "is_hit"),
    [
        (".env", ".[^a]nv", True),
        (".env", ".[^e]nv", False),
        (".env", ".[[:alpha:]]nv", True),
        (".env", ".[x[:digit:]e]nv", True),
        (".env", ".[x[:alpha:]][n]v", True),
        (".env", ".[^[:digit:]]nv", True),
        (".env", "[.]env", False),
        ("ab", "[[:alpha:]]c", False),
        ("a[b", "a[[]b", True),
    ],
)
def test_a_pattern_is_read_as_the_shell_does(name: str, pattern: str, is_hit: bool) -> None:
    assert is_matched(name, pattern) == is_hit


@pytest.mark.parametrize(
    "text",
    ["X=3; echo $((X + 1))", "for i in 1 2; do echo $((i * 2)); done", "a=7; b=2; echo $((a / b)) $a",
     'x=4; echo "$((x % 3))"'],
)  # fmt: skip
async def test_counting_with_known_numbers_asks_nobody(reference: Reference, text: str) -> None:
    assert await looks(reference, text) == ["allow", "allow"]


@pytest.mark.parametrize(
    "text",
    ["echo $((X + 1))", "X='a[$(./x)]'; echo $((X + 1))", "X=3; echo $((X = 5))", "X=3; echo $((X++))",
     "X=3; echo $((--X))", "X=y; echo $((X + 1))", "read X < a.txt; echo $((X + 1))", "X=3; echo $((a[X]))",
     "X=3; read X < a.txt; echo $((X))", "x=$((1 + 1)); echo $((x + 1))"],
)  # fmt: skip
async def test_counting_with_what_may_run_something_asks(reference: Reference, text: str) -> None:
    assert (await looks(reference, text))[0] == "ask"
