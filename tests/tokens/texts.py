"""Texts of many kinds, as a conversation with an agent has them: the same ones for the same seed."""

# ruff: noqa: RUF001
from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]

LIBRARY = Path(dataclasses.__file__).parent
MODULES = ("argparse.py", "dataclasses.py", "textwrap.py", "shutil.py", "csv.py", "heapq.py", "queue.py")
ENGLISH = (
    "The session keeps everything that it accepted, even if the machine is switched off in the middle of its work. ",
    "Could you first check whether the tests of the parser still pass, and then look at the failing build? ",
    "I found the cause: the cache was cleared before the last write had been confirmed by the other server. ",
    "After the release we noticed that a few customers had been charged twice for the same order. ",
    "The function returns early when the list is empty, which is why nobody ever saw the warning. ",
    "Please keep the summary short, and name the files that you changed and the commands that you ran. ",
    "Most of the time goes into waiting for the disk, so a faster processor would hardly help here. ",
    "We agreed to move the meeting to Thursday, because two people of the team are travelling until then. ",
    "It is not clear from the report which version of the library the affected users had installed. ",
)
GERMAN = (
    "Die Sitzung bleibt bestehen, auch wenn der Rechner mitten in der Arbeit ausgeschaltet wird. ",
    "Bitte prüfe zuerst, ob die Änderungen an der Schnittstelle auch in der Dokumentation stehen. ",
    "Der Zwischenspeicher wird erst geleert, nachdem alle Schreibvorgänge bestätigt worden sind. ",
    "Warum schlägt die Überprüfung auf dem Anwendungsserver fehl, obwohl sie lokal erfolgreich ist? ",
    "Ich habe die Abhängigkeiten aktualisiert und die beiden fehlerhaften Prüfungen wiederholt. ",
    "Für größere Datenmengen empfiehlt sich eine schrittweise Verarbeitung in kleinen Blöcken. ",
    "Das Verzeichnis enthält mehrere hundert Dateien, von denen nur wenige gebraucht werden. ",
    "Anschließend müssen die Berechtigungen überprüft und gegebenenfalls eingeschränkt werden. ",
)
CJK = (
    "请先检查配置文件是否存在，然后再运行测试。如果测试失败，请告诉我具体的错误信息和出错的位置。",
    "这个函数在处理空列表时会抛出异常，因此我们需要在调用之前添加一个判断，并且补充相应的单元测试。",
    "数据库连接在超时之后没有被正确释放，导致服务器在高负载时无法接受新的请求。",
    "設定ファイルを読み込む前に、文字コードが正しいかどうかを確認してください。結果は表にまとめてください。",
    "このテストは夜間に実行されるため、失敗した場合は翌朝に担当者へ通知されます。ログも保存しておきます。",
    "세션이 종료되기 전에 모든 변경 사항이 저장되었는지 확인해 주세요. 오류가 있으면 바로 알려 주세요.",
    "이 함수는 입력값을 검증한 다음 결과를 목록으로 반환합니다. 테스트도 함께 추가했습니다.",
)
HOSTS = ("api-1", "api-2", "worker-7", "db-primary")
PLACES = ("/srv/app/releases/current", "/var/lib/holdfast/blobs", "/home/ann/project/src")
SAID = (
    "connection accepted from 10.{}.4.{} port {}",
    "GET /v1/items/{}?page={} 200 {}ms",
    "slow query took {} ms, {} rows, plan hash {:x}",
    "retrying job {} after failure {} of {}",
    "flushed {} records to segment {:08x} at offset {}",
)


def english(random: Random, size: int) -> str:
    if random.random() < 0.3:
        lines = (ROOT / "LICENSE").read_text().splitlines()
        start = random.randrange(len(lines))
        return _sized([*lines[start:], *lines, *lines], "\n", size)
    return _sized([random.choice(ENGLISH) for _ in range(size // 60 + 1)], "", size)


def german(random: Random, size: int) -> str:
    return _sized([random.choice(GERMAN) for _ in range(size // 60 + 1)], "", size)


def cjk(random: Random, size: int) -> str:
    return _sized([random.choice(CJK) for _ in range(size // 30 + 1)], "", size)


def python(random: Random, size: int) -> str:
    """A file of Python's own library, as `read_file` shows it."""
    start = random.randrange(len(MODULES))
    lines = [
        line
        for name in (*MODULES[start:], *MODULES)
        for line in (LIBRARY / name).read_text().splitlines()[200:]
    ]
    return _sized(
        [f"{number:>6}  {line}" for number, line in enumerate(lines[: size // 8 + 1], 1)], "\n", size
    )


def data(random: Random, size: int) -> str:
    """Indented JSON, as a service answers it."""
    rows = [
        {
            "id": random.randrange(10**6),
            "name": random.choice(HOSTS),
            "is_active": random.random() < 0.5,
            "score": round(random.random() * 100, 3),
            "tags": [random.choice(("blue", "fast", "legacy", "eu-west")) for _ in range(3)],
            "owner": {"login": random.choice(("ann", "ben", "carla")), "path": random.choice(PLACES)},
        }
        for _ in range(size // 200 + 1)
    ]
    return json.dumps(rows, indent=random.choice((None, 2)))[:size]


def log(random: Random, size: int) -> str:
    """Lines of a server's log."""
    lines = []
    for at in range(size // 70 + 1):
        figures = [random.randrange(10 ** random.randint(1, 5)) for _ in range(3)]
        said = random.choice(SAID).format(*figures)
        stamp = f"2026-11-{at % 28 + 1:02}T{at % 24:02}:{random.randrange(60):02}:{random.randrange(60):02}"
        level = random.choice(("INFO", "WARN", "DEBUG"))
        lines.append(f"{stamp}.{random.randrange(1000):03}Z {level} {random.choice(HOSTS)} {said}")
    return _sized(lines, "\n", size)


KINDS = {"english": english, "german": german, "python": python, "json": data, "log": log, "cjk": cjk}


def _sized(pieces: list[str], between: str, size: int) -> str:
    text = between.join(pieces)
    return text[:size]
