"""The hook of a tortured session: it notes what it hears, answers as the call says, and strikes on an order.

It imports nothing of Holdfast. Beside it lie `hooks.log`, to which it adds a line when it begins and when it ends,
and maybe `order`: "N SIGNAL WHOM", which the N-th hook from then on obeys.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_SUBJECTS = {
    "before_tool": "call",
    "after_tool": "call",
    "approval": "approval",
    "turn_end": "turn",
    "before_model": "request",
    "after_model": "request",
    "run_start": "run",
    "run_end": "run",
}
_ANSWERS = {
    "guard-deny": {"verdict": "deny", "reason": "Not this."},
    "guard-ask": {"verdict": "ask", "reason": "Is it so?"},
}


def tell(*words: object) -> None:
    """A line of the log, written at once."""
    line = json.dumps([time.monotonic(), os.getpid(), *words]) + "\n"
    fd = os.open(HERE / "hooks.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


def strike(number: int, whom: str) -> None:
    """Send the signal: to the driver, to the guard of this hook, or to the keeper of all."""
    guard = os.getppid()
    keeper = int(Path(f"/proc/{guard}/stat").read_bytes().rpartition(b")")[2].split()[1])
    driver = int(Path(f"/proc/{keeper}/cmdline").read_bytes().split(b"\0")[-2])
    os.kill({"guard": guard, "keeper": keeper, "driver": driver}[whom], number)


def obey(subject: str) -> None:
    """Count down to the blow that is ordered."""
    order = HERE / "order"
    if not order.exists():
        return
    with order.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        words = file.read().split()
        if len(words) != 3:
            return
        left = int(words[0]) - 1
        file.seek(0)
        file.truncate()
        if left:
            file.write(f"{left} {words[1]} {words[2]}")
            return
    tell("strikes", subject, words[2])
    strike(int(words[1]), words[2])
    time.sleep(0.05)


def misbehave(word: str) -> None:
    """Do what a bad hook does."""
    clean = {"PATH": os.environ["PATH"]}
    match word:
        case "guard-fork":
            for _ in range(3):
                subprocess.Popen(["setsid", "sleep", "300"], env=clean, cwd=HERE)
        case "guard-deaf":
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 300 & sleep 300"], env=clean)
            time.sleep(300)
        case "guard-flood":
            while True:
                os.write(1, b"x" * 65536)
        case "guard-loud":
            for _ in range(200):
                os.write(2, b"y" * 65536)
        case "guard-die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "guard-slow":
            time.sleep(0.3)


def answer_to(event: dict[str, Any]) -> dict[str, Any]:
    """The answer that the arguments of the call name."""
    text = json.dumps(event["arguments"])
    for word in ("fork", "deaf", "flood", "loud", "die", "slow"):
        if f"guard-{word}" in text:
            misbehave(f"guard-{word}")
    if "guard-change" in text:
        return {"arguments": json.loads(text.replace("guard-change", "guard-other"))}
    return next((answer for word, answer in _ANSWERS.items() if word in text), {})


def foreign_files() -> list[str]:
    """The open files that a program has not opened itself and should not have."""
    fds = Path("/proc/self/fd")
    return [str(fd.readlink()) for fd in list(fds.iterdir()) if int(fd.name) > 2 and fd.is_symlink()]


def main() -> None:
    """Hear of one event, and answer."""
    held = [name for name in foreign_files() if not name.startswith("/proc/")]
    event = json.load(sys.stdin)
    kind, hook = event["event"], event["hook"]
    subject = str(event[_SUBJECTS[kind]])
    tell("begun", hook, kind, subject)
    for name in held:
        tell("holds", name)
    # One hook hears one thing at a time; about a call it is asked once at a time.
    lock = os.open(
        HERE / f"{hook}-{subject if kind == 'before_tool' else ''}.lock",
        os.O_CREAT | os.O_RDWR | os.O_CLOEXEC,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell("overlaps", hook, kind, subject)
    obey(subject)
    if kind != "before_tool":
        time.sleep(0.01 * (sum(map(ord, subject)) % 4))
    answer = answer_to(event) if kind == "before_tool" else {}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    tell("ended", hook, kind, subject)


if __name__ == "__main__":
    main()
