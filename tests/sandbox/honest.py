"""The work that must succeed in every sandbox: otherwise people switch it off."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

_GIT = "git -c user.name=n -c user.email=e@x"
_ALWAYS: Mapping[str, str] = {
    "commit": f"echo x > a.txt; git add a.txt; {_GIT} commit -qm one; git log --oneline | grep -q one",
    "commit all": f"echo y >> a.txt; {_GIT} commit -qam two",
    "branch": f"git checkout -qb other; echo z > b.txt; git add b.txt; {_GIT} commit -qm three; git checkout -q -",
    "merge": f"{_GIT} merge -q other; test -e b.txt",
    "stash": f"echo more >> a.txt; {_GIT} stash -q; {_GIT} stash pop -q; git checkout -q a.txt",
    "collect garbage": "git gc -q",
    "make a repository": "mkdir -p new; cd new; git init -q; touch x; git add x",
    "add a worktree in the workspace": "git worktree add -q tree other; test -e tree/b.txt",
    "write to /tmp": "f=$(mktemp); echo x > $f; cat $f",
    "use a home": "mkdir -p ~/.cache/tool; touch ~/.cache/tool/x",
    "substitute a process": "diff <(echo a) <(echo a)",
    "read a document": "cat > doc.txt <<END\nhello\nEND\ngrep -q hello doc.txt",
    "read a text": "grep -q a <<< abc",
    "work with processes":
        "{python} -c \"import multiprocessing as m; assert m.Pool(2).map(abs, [1, -2]) == [1, 2]\"",
    "share memory of its own":
        "{python} -c \"from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=9); "
        "m.close(); m.unlink()\"",
    "run tests": "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test_x(self): 0\\n' > test_x.py; "
        "{python} -m unittest -q",
    "run tests with asyncio": "{python} -c 'import asyncio; asyncio.run(asyncio.sleep(0))'",
    "make a virtual environment": "{python} -m venv --without-pip venv; venv/bin/python -c 'import sys'",
    "install a wheel": "{python} -m pip install -q --no-index --no-deps --target vendored "
        "dist/tiny-1-py3-none-any.whl; PYTHONPATH=vendored {python} -c 'import tiny'",
    "install from an index in the workspace": "{python} -m pip install -q --no-index --find-links dist "
        "--target more tiny; test -e more/tiny.py",
    "rename and remove": "mkdir -p d/e; touch d/e/f; mv d g; rm -r g",
    "see its own processes": "sleep 5 & test $(ls -d /proc/[0-9]* | wc -l) -gt 1; kill %1",
    "read the system": "cat /etc/os-release > /dev/null; ls /usr/bin > /dev/null; id > /dev/null",
    "start in the background": "sleep 0.2 & wait; (setsid sleep 300 &); true",
    "pipe": "seq 1000 | grep 9 | sort -rn | head -n 1 | grep -q 999",
    "nest shells": "bash -c 'sh -c \"echo deep\"' | grep -q deep",
    "run a script of its own": "printf '#!/bin/sh\\necho ran\\n' > script; chmod +x script; ./script | grep -q ran",
    "change modes and times": "touch t; chmod 600 t; touch -d 2001-01-01 t; ln -s t link; ln t hard; rm link hard",
    "sort a large file": "seq 200000 | sort -R --random-source=/dev/zero | sort -n | tail -n 1 | grep -q 200000",
    "pack and unpack": "mkdir -p p; seq 1000 > p/x; tar czf p.tgz p; rm -r p; tar xzf p.tgz; test -e p/x",
    "lock a file": "{python} -c \"import fcntl; fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX)\"",
    "use a database":
        "{python} -c \"import sqlite3; c = sqlite3.connect('x.db'); c.execute('pragma journal_mode=wal'); "
        "c.execute('create table t (a)'); c.commit(); c.close()\"",
    "talk through a pair of sockets":
        "{python} -c \"import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1)\"",
    "use a pseudo-terminal": "{python} -c \"import pty; pty.openpty()\"",
    "write to the standard devices": "echo x > /dev/null; head -c 9 /dev/urandom > r; head -c 9 /dev/zero > z",
    "time out": "timeout 0.1 sleep 5 || test $? = 124",
    "run a program that a home has, too": "uname | grep -q .",
}  # fmt: skip
_WITH: Mapping[str, tuple[str, str]] = {
    "make": ("make", "printf 'all:\\n\\techo made > made.txt\\n' > Makefile; make -s; test -e made.txt"),
    "compile C": ("cc", "echo 'int main(void) {{ return 0; }}' > x.c; cc x.c -o x; ./x"),
    "run Node": ("node", "echo 'require(\"fs\").writeFileSync(\"n.txt\", \"x\")' > n.js; node n.js; test -e n.txt"),
    "query a database by its program": ("sqlite3", "sqlite3 y.db 'create table t (a); select 1;' | grep -q 1"),
    "run Perl": ("perl", "perl -e 'print 1' | grep -q 1"),
}  # fmt: skip
"""What needs a program that not every machine has, with its name."""
_USUAL = ("/usr/bin/", "/bin/", "/usr/local/bin/")

HONEST: Mapping[str, str] = {
    **_ALWAYS,
    **{
        what: command
        for what, (name, command) in _WITH.items()
        if (shutil.which(name) or "").startswith(_USUAL)
    },
}
"""Commands of bash that must end with exit code 0, in this order. `{python}` is an interpreter."""

_SLOW = (
    "make a virtual environment",
    "install a wheel",
    "install from an index in the workspace",
    "run Node",
    "run tests with asyncio",
    "sort a large file",
    "compile C",
)
QUICK: Mapping[str, str] = {what: command for what, command in HONEST.items() if what not in _SLOW}


PROGRAMS = "bin"
"""A folder of the home with which PATH begins."""


def furnish(workspace: Path, home: Path) -> None:
    """Make what the work needs."""
    shim = home / PROGRAMS / "uname"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\nPATH=/usr/bin:/bin exec uname "$@"\n')
    shim.chmod(0o755)
    for name in (".env", "conf/id_rsa"):  # where git tracks or sees a secret, some of its work fails
        (workspace / name).unlink()
    wheel = workspace / "dist" / "tiny-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tiny.py", "")
        packed.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        packed.writestr(
            "tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr("tiny-1.dist-info/RECORD", "")
    subprocess.run(["git", "-C", workspace, "config", "--local", "gc.auto", "0"], check=True)
