"""The table of programs: what options and operands read, write, run and send."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.policy.programs import KNOWN, ROWS, uses_of
from holdfast.policy.simple import SimpleCommand, Word
from tests.policy.simply import command, files, is_known, uses
from tests.policy.test_shell_bounds import calls

LOOKS = """
ls
ls -la src
cat a.txt b.txt
cat -n a.txt
head -20 a.txt
head -n 20 a.txt
tail -n +5 a.txt
wc -l a.txt
sort -k2 -n -r a.txt
sort --field-separator=, --key=2 a.txt
uniq -c a.txt
cut -d: -f1 a.txt
tr a-z A-Z
grep -rn pattern src --include='*.py'
grep -e one -e two a.txt
egrep -v '^#' a.txt
rg -n --glob '!*.md' pattern src
find . -name '*.py' -not -path './.venv/*' -newer a.txt
find src -maxdepth 2 -type f -size +10k -printf '%p\\n'
fd -e py pattern src
diff -u a.txt b.txt
cmp -s a.txt b.txt
file -b a.txt
stat -c %s a.txt
du -sh src
df -h
tree -L 2 src
pwd
echo 'a $(literal) text'
printf '%s\\n' a
true
test -f a.txt
[ -d src ]
date +%s
date -d yesterday
env
printenv PATH
which python
type ls
command -v rg
basename a/b.txt .txt
dirname a/b.txt
realpath a.txt
readlink -f a.txt
sed -n 1,20p a.txt
sed 's/a/b/g; /x/d' a.txt
sed -e 's|a|b|' -e '$!d' a.txt
sed ':a;N;$!ba;s/\\n/ /g' a.txt
awk '{print $1, $NF}' a.txt
awk -F: -v n=1 'NR % 2 == n' a.txt
awk 'NR>=10 && NR<=20' a.txt
awk '$3 > 100 || $1 < 5 {print $1, "->", $2}' a.txt
awk '/one|two/ {n++} END {print n}' a.txt
awk '{if ($1 > 5) print; x = $2 > 3}' a.txt
awk -F'|' '{printf "%s | %s\\n", $1, $2}' a.txt
jq -r '.a[] | .b' a.json
column -t -s, a.txt
nl -ba a.txt
tac a.txt
rev a.txt
comm -12 a.txt b.txt
paste -d, a.txt b.txt
fold -w 80 a.txt
md5sum a.txt
sha256sum a.txt
xxd -l64 a.txt
od -c a.txt
strings -n 8 a.bin
/usr/bin/ls -l
python3 --version
set -euo pipefail
cd src
mkdir -p a/b
touch a.txt
rm a.txt
tee -a log.txt
ln -s a.txt b.txt
""".strip().splitlines()


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("text", LOOKS)
def test_a_usual_command_is_known_so_that_only_its_files_decide(text: str) -> None:
    assert is_known(text), uses(text)


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat a.txt -", {"read a.txt"}),
        ("cat -- -n", {"read -n"}),
        ("ls", {"read ."}),
        ("ls src docs", {"read src", "read docs"}),
        ("grep x", set()),
        ("grep -r x", {"read ."}),
        ("grep x a b", {"read a", "read b"}),
        ("grep -f patterns a", {"read patterns", "read a"}),
        ("grep -ffile a", {"read file", "read a"}),
        ("grep -e x a", {"read a"}),
        ("grep --fil=patterns a", {"read patterns", "read a"}),
        ("rg x", {"read ."}),
        ("rg --files src", {"read src"}),
        ("sort -o out a", {"read a", "write out"}),
        ("sort -oout a", {"read a", "write out"}),
        ("sort -rno out a", {"read a", "write out"}),
        ("sort a --out=out", {"read a", "write out"}),
        ("sort -T folder a", {"read a", "write folder"}),
        ("uniq a out", {"read a", "write out"}),
        ("uniq -f 1 a out", {"read a", "write out"}),
        ("uniq - out", {"write out"}),
        ("wc --files0-from=list", {"read list"}),
        ("xxd a out", {"read a", "write out"}),
        ("xxd -ps a out", {"read a", "write out"}),
        ("xxd a -c", {"read a", "write -c"}),
        ("tree -o out src", {"read src", "write out"}),
        ("find a b -type f", {"read a", "read b"}),
        ("find -type f", {"read ."}),
        ("find . -newer a", {"read .", "read a"}),
        ("find . -newermt 2024-01-01", {"read ."}),
        ("find . -fprintf out x", {"read .", "write out"}),
        ("find a -delete", {"read a", "tree a"}),
        ("sed -i s/a/b/ f", {"read f", "write f"}),
        ("sed -i.old s/a/b/ f", {"read f", "write f", "write f.old"}),
        ("sed -n -f script f", {"read script", "read f"}),
        ("cp a b", {"read a", "write b", "write b/a"}),
        ("cp -t d a b", {"read a", "read b", "write d", "write d/a", "write d/b"}),
        ("cp -r a b", {"read a", "tree b", "tree b/a"}),
        ("mv a b", {"tree a", "tree b", "tree b/a"}),
        ("rm a b", {"write a", "write b"}),
        ("rm -rf a", {"tree a", "write a"}),
        ("tee a /dev/null", {"write a"}),
        ("touch -r ref a", {"read ref", "write a"}),
        ("chmod +x a", {"write a"}),
        ("dd if=a of=b bs=1", {"read a", "write b"}),
        ("ln -s / link", {"write link", "write link/", "tree /"}),
        ("ln -s ../a sub/l", {"write sub/l", "write sub/l/a", "tree sub/../a", "tree sub/l/../a"}),
        ("ln a b", {"write b", "write b/a", "tree a"}),
        ("ln -s folder/name", {"write name", "write name/name", "tree folder/name", "tree name/folder/name"}),
        ("tar -xf a.tar -C folder", {"write a.tar", "write folder"}),
        ("diff --from-file=a b", {"read a", "read b"}),
        ("jq -n --slurpfile x a.json '$x'", {"read x", "read a.json"}),
        ("test a -nt b", {"read a", "read b"}),
        ("[ -e a ]", {"read a"}),
        ("echo *.txt", {"read *.txt"}),
        ("cd src", {"read src"}),
    ],
)
def test_options_and_operands_read_and_write_the_files_that_they_name(text: str, expected: set[str]) -> None:
    assert files(text) == expected


@pytest.mark.requirement("C12")
@pytest.mark.parametrize(
    "text",
    ["sort --compress-program=./x a", "sort --compress-prog=./x a", "sort --comp ./x a", "rg --pre ./x TODO",
     "rg --pre=./x TODO", "rg -z TODO", "rg --hostname-bin=./x a", "split --filter=./x a",
     "tar --checkpoint-action=exec=./x -cf a b", "tar --use-compress-program ./x -xf a", "tar -I./x -xf a",
     "fd x -x ./x", "fd --exec ./x", "find . -delete", "find . -unknown", "find -L . -name x",
     "find . -name *.py", "find . -files0-from list", "grep -R x .", "rg --follow x", "diff -r a b", "du -L",
     "tree -l", "wc --files0-from=list", "sort --files0-from=list", "file -f list", "file -C -m magic",
     "strings @list", "sort --unknown a", "ls --unknown", "cat -q", "uniq a b c", "uniq -1 a b", "date -s now",
     "date 0101", "hostname other", "md5sum -c list", "cmp a b 1 2 c",
     "sed s/a/b/e a", "sed 'w out' a", "awk 'BEGIN{system(\"x\")}'", "awk '{print > \"f\"}' a",
     "awk '{print | \"sh\"}' a", "awk 'BEGIN{while((getline l < ARGV[1])>0) print l}' a",
     "awk 'BEGIN{ARGV[1]=\"/etc/passwd\";ARGC=2} 1'", "awk -f script a", "awk -i inplace 1 a",
     "awk '@load \"x\"'", "awk *", "awk [a]* a", "jq ?", "sed ? a",
     "awk 'NR>5 {print $1 > \"f\"}' a", "awk '{print \"}\" > \"f\"}' a", "awk '{print ($1 > \"f\")}' a",
     "awk '{print $1,\n$2 > \"f\"}' a", "awk '/\"/ {print \"x\" > \"f\"} /\"/' a", "awk '{printf $1 | \"x\"}' a",
     "awk '{print /\"/ > \"f\" /\"/}' a", "awk 'BEGIN{\"x\" | getline}'", "awk 'BEGIN{print 1 # \"\n> \"f\"}'",
     "awk 'BEGIN{print \"x\" |& \"y\"}'", "awk 'BEGIN{getline < \"f\"}'",
     "jq -f script a", "jq -L . '.'", "jq 'import \"a\" as $a; .'", "chmod +x a",
     "chown me a", "kill 1", "truncate -s0 a", "rm -r a", "rm *.pyc", "cp -L a b", "dd if=a of=b", "touch *.py",
     "mkdir -p new/../b", "shred a", "crontab -r", "unzip a.zip",
     "make", "npm test", "pip install x", "python x.py", "python -c 'x'", "pytest", "./script", "unknown",
     "/ws/bin/git status", "bin/ls", "/tmp/ls", "ls*", "$X a", "ps aux", "docker ps", "man ls", "less a",
     "vim a", "awk --version-x", "wget https://example.com/"],
)  # fmt: skip
def test_what_may_run_or_change_something_needs_a_person(text: str) -> None:
    assert uses(text).asks, uses(text)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("cp a b", {"b", "b/a"}),
        ("cp -n a b", set()),
        ("mv a b", {"a", "b", "b/a"}),
        ("ln -f a b", {"b", "b/a"}),
        ("ln a b", set()),
        ("tee a", {"a"}),
        ("tee -a a", set()),
        ("sed -i s/a/b/ a", {"a"}),
        ("sort -o a b", {"a"}),
        ("uniq a b", {"b"}),
        ("touch a", set()),
        ("rm a", set()),
    ],
)
def test_what_replaces_a_file_or_moves_it_away_says_so(text: str, replaced: set[str]) -> None:
    assert {use.word.text for use in uses(text).files if use.overwrites} == replaced


@pytest.mark.parametrize(
    "text", ["cat $X", "ls $X", "grep $X a", "sort $X", "head -n $N a", "rm $X", "[ -n $X ]", "cp $X b"]
)
def test_a_word_that_is_known_only_when_it_runs_needs_a_person(text: str) -> None:
    assert uses(text).asks
    assert not uses("echo $X").asks
    assert not uses("pwd; true $X".partition(";")[2]).asks


@pytest.mark.parametrize(
    "text", ["uniq *.txt", "head -n *.txt a", "find *.txt -name *.py", "touch *", "env -S *"]
)
def test_a_pattern_where_its_matches_mean_different_things_needs_a_person(text: str) -> None:
    assert uses(text).asks
    assert not uses("wc -l *.py").asks


@pytest.mark.parametrize(
    "text", ["grep -r --include=*.py x a", "rg --glob=*.py x a", "grep -r --exclude=*.md x a"]
)
def test_a_pattern_behind_the_name_of_an_option_that_picks_files_stays_that_option(text: str) -> None:
    assert is_known(text), uses(text)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("grep -r --inc*=*.py x a", "--inc*=*.py"),
        ("rg -g *.py x a", "*.py"),
        ("grep -r --include *.py x a", "*.py"),
        ("grep --file=*.py a", "--file=*.py"),
        ("git log --format=*", "--format=*"),
        ("sort --output=*.py a", "--output=*.py"),
        ("ls -*", "-*"),
    ],
)
def test_another_pattern_among_options_needs_quotes_and_the_question_says_so(text: str, word: str) -> None:
    assert f"`{word}`" in uses(text).asks
    assert "needs quotes" in uses(text).asks


@pytest.mark.requirement("C12")
@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_abbreviation_of_a_dangerous_option_is_dangerous(name: str) -> None:
    row = ROWS[name]
    dangerous = f"{row.runs} {row.asks} {row.lists} {row.writes} {row.denies}".split()
    for option in (each.rstrip("=?") for each in dangerous if each.startswith("--")):
        for end in range(3, len(option) + 1):
            plain = {each.rstrip("=?") for each in f"{row.plain} {row.reads} --help --version".split()}
            if option[:end] in plain:
                continue  # another option has exactly this name
            found = uses_of(command(f"{name} {option[:end]}=v a"))
            is_written = any(use.access == "write" for use in found.files)
            assert found.asks or found.denies or is_written, option[:end]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_option_has_one_meaning(name: str) -> None:
    row = ROWS[name]
    kinds = [row.plain, row.reads, row.writes, row.lists, row.runs, row.asks, row.denies]
    seen = [{each.rstrip("=?") for each in kind.split()} for kind in kinds]
    assert sum(map(len, seen)) == len(set().union(*seen))
    stands_in = {*row.stands_in.split(), *row.walks.split()}
    assert stands_in <= set().union(*seen)


WORDS = st.sampled_from(
    [
        "-",
        "--",
        "-a",
        "-o",
        "-rf",
        "--out",
        "--x=1",
        "a",
        "../b",
        "*",
        "{}",
        ";",
        "+",
        "s/a/b/",
        "-exec",
        "=",
        "",
        "-c",
        "-S",
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KNOWN)), st.lists(st.builds(Word, WORDS, st.booleans(), st.booleans()), max_size=6)
)
def test_no_words_of_a_known_program_are_too_strange(name: str, given_words: list[Word]) -> None:
    found = uses_of(SimpleCommand((Word(name), *given_words)))
    assert "\n" not in found.asks + found.denies
    for inner in found.inner:
        assert len(inner.words) <= len(given_words) + 3


@pytest.mark.parametrize(
    "unit",
    [
        "--n ",
        "-nnnnnnnn ",
        "--files0-from=x ",
        "a* ",
        "-exec ",
        "-exec ls {} + ",
        "-S a ",
        "A=b ",
        "-t d ",
        "-e 1~1p ",
        "%(",
        "%_",
    ],
)
@pytest.mark.parametrize("name", ["grep", "find", "env -S", "cp", "sed", "git log", "printf"])
def test_the_work_grows_with_the_length_of_the_words(name: str, unit: str) -> None:
    def work(count: int) -> int:
        hostile = command(f"{name} {unit * count}")
        return calls(lambda: uses_of(hostile))

    work(1)
    assert work(200) <= 2.5 * work(100) + 500
