"""Builtins, wrappers, shells and programs of the network in the table of programs."""

from __future__ import annotations

import pytest

from holdfast.policy.commands import parsed
from holdfast.policy.programs import uses_of
from holdfast.policy.simple import SimpleCommand, Word
from tests.policy.simply import files, is_known, uses


def inner(text: str) -> list[str]:
    return [" ".join(word.text for word in each.words) for each in uses(text).inner]


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nohup ls -l", "ls -l"),
        ("timeout 5 ls -l", "ls -l"),
        ("timeout -s KILL --kill-after=3 5 ls -l", "ls -l"),
        ("nice -n 5 ls -l", "ls -l"),
        ("nice -5 ls -l", "ls -l"),
        ("ionice -c 3 ls -l", "ls -l"),
        ("stdbuf -oL ls -l", "ls -l"),
        ("setsid -w ls -l", "ls -l"),
        ("time -p ls -l", "ls -l"),
        ("command ls -l", "ls -l"),
        ("command -p ls -l", "ls -l"),
        ("builtin echo -l", "echo -l"),
        ("exec ls -l", "ls -l"),
        ("env ls -l", "ls -l"),
        ("env -i -u X LANG=C ls -l", "ls -l"),
        ("env -S 'ls -l'", "ls -l"),
        ("env '-Sls -l' a", "ls -l a"),
        ("env --split-string='ls -l'", "ls -l"),
        ("xargs -0 -n 1 ls -l", "ls -l "),
        ("xargs -I% mv % b", "mv % b"),
        ("find . -exec ls -l ';'", "ls -l"),
        ("find . -name x -exec ls -l '{}' +", "ls -l ."),
        ("sudo -n ls -l", "ls -l"),
        ("timeout 5 nice -n 3 env ls", "nice -n 3 env ls"),
    ],
)
def test_a_wrapper_runs_the_command_after_its_own_words(text: str, expected: str) -> None:
    assert inner(text) == [expected]


def test_the_words_that_a_wrapper_adds_are_known_only_when_it_runs() -> None:
    assert [word.is_known for word in uses("xargs cat a").inner[0].words] == [True, True, False]
    assert [word.is_known for word in uses("xargs -I% cat a%b c").inner[0].words] == [True, False, True]
    assert [word.is_known for word in uses("find . -exec cat '{}' ';'").inner[0].words] == [True, False]


def test_the_variables_that_env_sets_belong_to_what_it_runs() -> None:
    (run,) = uses("env LD_PRELOAD=./e.so ls").inner
    assert run.assigned == (("LD_PRELOAD", Word("./e.so")),)
    assert uses_of(run).asks


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("name", ["sudo", "doas", "su", "pkexec", "runuser"])
def test_a_command_with_the_rights_of_another_user_never_runs(name: str) -> None:
    assert uses(f"{name} ls").denies


@pytest.mark.parametrize(
    "text", ["sh -c 'ls -l'", "bash -lc 'ls -l'", "bash -e -c 'ls -l' x y", "eval ls -l", "trap 'ls -l' EXIT"]
)
def test_a_text_for_a_shell_is_a_script(text: str) -> None:
    assert [word.text for word in uses(text).scripts] == ["ls -l"]
    assert not uses(text).asks


@pytest.mark.parametrize(
    "text",
    ["bash script.sh", "sh", "bash -s", "bash --rcfile x -c ls", "bash -O extglob -c ls", "zsh -c ls",
     "bash -c $X", "eval $X", "source a", ". a", "alias ls=x", "enable -f x y", "hash -p ./x ls",
     "compgen -C ./x", "mapfile -C ./x a", "shopt -s dotglob", "let x=1", "history -r a", "fc -s",
     "complete -C x y", "set -k", "set -o posix", "env -S './x --a'", "env -C a ls", "env -vS x", "busybox ls",
     "watch ls", "parallel ls", "flock a ls", "strace ls", "script -c ls", "chroot . ls", "unshare ls"],
)  # fmt: skip
def test_what_evaluates_or_hides_words_needs_a_person(text: str) -> None:
    assert uses(text).asks, uses(text)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["test -v 'a[$(./x)]'", "[ -v 'a[$(./x)]' ]", "[[ -v 'a[$(./x)]' ]]", "[[ x -eq 1 ]]",
     "[[ 'a[$(./x)]' -eq 1 ]]", "printf -v 'a[$(./x)]' x", "printf '-va[$(./x)]' x", "printf '%n' x",
     "read 'a[$(./x)]'", "unset 'a[$(./x)]'", "declare 'a[$(./x)]=1'", "declare -n a=b",
     "declare -i 'a=b[$(./x)]'", "export 'PATH=.'", "read PATH", "printf -v PATH x", "local BASH_ENV=x",
     "readonly IFS=x", "mapfile PATH"],
)  # fmt: skip
def test_a_name_that_is_evaluated_or_a_variable_that_others_read_needs_a_person(text: str) -> None:
    assert uses(text).asks, uses(text)


@pytest.mark.parametrize(
    "text",
    ["[ -v name ]", "[[ 1 -lt 2 ]]", "printf -v name x", "read -r name", "export name=x", "unset name"],
)
def test_a_variable_of_the_command_itself_is_free(text: str) -> None:
    assert is_known(text)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("name", "value", "is_free"),
    [
        ("LANG", "C.UTF-8", True), ("LC_ALL", "C", True), ("TZ", "UTC", True), ("NO_COLOR", "1", True),
        ("TERM", "dumb", True), ("PAGER", "cat", True), ("GIT_PAGER", "cat", True), ("name", "./x", True),
        ("PAGER", "x", False), ("TZ", "/etc/passwd", False), ("LANG", "../x", False), ("LD_PRELOAD", "e.so", False),
        ("BASH_ENV", "./x", False), ("GIT_EXTERNAL_DIFF", "./x", False), ("PATH", ".", False), ("IFS", "x", False),
        ("PS4", "$(./x)", False), ("PROMPT_COMMAND", "x", False), ("http_proxy", "x", False),
        ("PYTHONPATH", "x", False),
        ("HOME", "x", False), ("LESSOPEN", "x", False), ("FOO", "x", False),
    ],
)  # fmt: skip
def test_only_variables_that_change_no_program_are_free(name: str, value: str, is_free: bool) -> None:
    set_here = SimpleCommand((Word("ls"),), ((name, Word(value)),))
    assert (not uses_of(set_here).asks) is is_free
    assert (not uses_of(set_here._replace(words=())).asks) is is_free


# --- the network ----------------------------------------------------------------------------------


def sends(text: str) -> list[str]:
    return [word.text for word in uses(text).sends]


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("curl -s https://a.example/x", ["https://a.example/x"]),
        ("curl a.example", ["http://a.example"]),
        ("curl --url https://a.example -o out b.example", ["https://a.example", "http://b.example"]),
        ("curl -I --max-time 5 https://a.example", ["https://a.example"]),
        ("curl --pinnedpubkey sha256//AAA= https://a.example", ["https://a.example"]),
        ("curl --ciphers b.example --max-redirs 3 -z c.example a.example", ["http://a.example"]),
        ("curl --proxy-header b.example --tlsuser c.example --krb d.example a.example", ["http://a.example"]),
        ("curl --nobody-knows b.example a.example", ["http://b.example", "http://a.example"]),
        ("wget -q https://a.example/x", ["https://a.example/x"]),
        ("wget --pinnedpubkey sha256//AAA= --header b.example -D c.example a.example", ["http://a.example"]),
        ("wget -B b.example a.example", ["http://b.example", "http://a.example"]),
        ("nc a.example 80", ["http://a.example:80"]),
        ("ssh me@a.example ls", ["http://a.example:22"]),
        ("scp a me@a.example:b", ["http://a.example:22"]),
        ("scp a b.example:x@a.example", ["http://b.example:22"]),
        ("scp -P 2222 -i id -l 100 a me@a.example:/b", ["http://a.example:2222"]),
        ("scp ./a:b a.example:22", ["http://a.example:22"]),
        ("scp a scp://me@a.example:23/b@c", ["http://a.example:23"]),
        ("ssh -p 23 git@a.example", ["http://a.example:23"]),
        ("ssh -p23 a.example", ["http://a.example:23"]),
        ("ssh -vp 23 a.example ls -p 5", ["http://a.example:23"]),
        ("ssh a.example -p 23 ls", ["http://a.example:23"]),
        ("ssh -o ConnectTimeout=3 git@a.example", ["http://a.example:22"]),
        ("ssh -o Port=23 -l me a.example", ["http://a.example:23"]),
        ("ssh -o HostName=b.example a.example", ["http://b.example:22"]),
        (
            "ssh -J b.example:23,c.example a.example",
            [f"http://{x}" for x in ("b.example:23", "c.example:22", "a.example:22")],
        ),
        ("ssh -o 'ProxyJump b.example' a.example", ["http://b.example:22", "http://a.example:22"]),
        ("ssh ssh://me@a.example:23", ["http://a.example:23"]),
        ("ssh -i id -F /dev/null -L 80:x:80 a.example", ["http://a.example:22"]),
        ("sftp -P 23 -b batch me@a.example:b/c@d", ["http://a.example:23"]),
        ("mosh -p 60001 --ssh='ssh -p 23' me@a.example -- ls", ["http://a.example:22"]),
        ("telnet -l me a.example 80", ["http://a.example:80"]),
        ("nc -w 3 a.example 80", ["http://a.example:80"]),
        ("whois -h b.example a.example", ["http://b.example:43"]),
        ("ping -c 3 -W 1 a.example", ["http://a.example"]),
        ("traceroute -m 5 a.example", ["http://a.example"]),
        ("traceroute -l a.example", ["http://a.example"]),
        ("ssh -P b.example a.example", ["http://b.example:22", "http://a.example:22"]),
        ("ping a.example", ["http://a.example"]),
        ("git clone https://a.example/x", ["https://a.example/x"]),
        ("git push https://a.example/x main", ["https://a.example/x"]),
    ],
)
def test_a_program_of_the_network_sends_to_the_addresses_that_it_names(
    text: str, expected: list[str]
) -> None:
    assert sends(text) == expected


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "is_denied"),
    [
        ("ssh -o ProxyCommand='nc b 22' a.example", True),
        ("ssh -oproxycommand=x a.example", True),
        ("scp -o 'Include x' a a.example:b", True),
        ("sftp -F config a.example", True),
        ("ssh -F none a.example", False),
        ("ssh -o BatchMode=yes a.example", False),
    ],
)
def test_a_setting_of_ssh_that_may_lead_to_another_machine_is_denied(text: str, is_denied: bool) -> None:
    assert bool(uses(text).denies) == is_denied


def test_a_port_or_a_setting_that_is_not_known_leaves_the_machine_unknown() -> None:
    for text in ("ssh -p $X a.example", "ssh -o $X a.example", "ssh -J $X a.example"):
        assert not all(word.is_known for word in uses(text).sends), text


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("curl -sS https://a.example", False),
        ("curl -H 'Accept: text/plain' https://a.example", False),
        ("curl -X GET https://a.example", False),
        ("curl -L https://a.example", True),
        ("curl -X POST https://a.example", True),
        ("curl -XDELETE https://a.example", True),
        ("curl -d x https://a.example", True),
        ("curl -dx https://a.example", True),
        ("curl --data-bin @a https://a.example", True),
        ("curl -T a https://a.example", True),
        ("curl -F a=@b https://a.example", True),
        ("curl -K config", True),
        ("curl -H 'Host: b' https://a.example", True),
        ("curl -H @a https://a.example", True),
        ("curl -u me:x https://a.example", True),
        ("curl -w @a https://a.example", True),
        ("curl 'https://{a,b}.example'", True),
        ("wget https://a.example", True),
        ("nc a.example 80", True),
        ("ssh a.example", True),
    ],
)
def test_only_a_plain_reading_of_an_address_is_left_to_the_list_of_hosts(text: str, is_asked: bool) -> None:
    assert bool(uses(text).asks) == is_asked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("curl -o out https://a.example/x", {"write out"}),
        ("curl -O 'https://a.example/b/x.txt?y'", {"write ./x.txt"}),
        ("curl -D head -c jar https://a.example", {"write head", "write jar"}),
        ("curl -T a https://a.example", {"read a"}),
        ("curl -K config", {"read config"}),
        ("wget https://a.example/", {"write ./index.html"}),
        ("wget -O out https://a.example/", {"write out"}),
        ("wget -P d https://a.example/x", {"write d", "write d/x"}),
    ],
)
def test_a_download_writes_where_its_options_say(text: str, expected: set[str]) -> None:
    assert files(text) == expected


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["curl --resolve a:443:1.2.3.4 https://a", "curl --connect-to a:1:b:2 https://a", "curl -x p https://a",
     "curl -xp https://a", "curl --proxy p https://a", "curl --prox p https://a",
     "curl --unix-socket s http://x", "curl --unix-s s http://x", "curl --socks5 p https://a",
     "curl --doh-url x https://a", "curl --interface x https://a", "wget --dns-servers=x https://a",
     "nslookup a.example", "dig a.example", "host a.example", "resolvectl query a.example"],
)  # fmt: skip
def test_what_leads_around_the_list_of_hosts_never_runs(text: str) -> None:
    assert uses(text).denies, uses(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [("x[i]=1", "x[i]=1"), ("x[0]=1; ls", "x[0]=1"), ("x+=a", "x+=a"), ("echo ${x[i]}", "${x[i]}"),
     ("echo $((i+1))", "$((i+1))"), ("((i++))", "(("), ("x=([i]=1)", "[i]=1")],
)  # fmt: skip
def test_a_question_about_what_is_counted_out_speaks_of_no_program(text: str, what: str) -> None:
    asks = [step.uses.asks for step in parsed(text).simple if step.uses.asks]
    assert asks[0] == f"`{what}` may run what is in its brackets or in its variables."
    (program,) = [step.uses.asks for step in parsed("${x} a").simple]
    assert "Which program" in program
