"""Writers of a secret store that are killed at ever later moments. After each, the store is whole."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from holdfast.access.sealing import KEY_VARIABLE
from holdfast.access.store import SecretStore

_STEP_S = 0.000_05


def main(home: Path, key: str, times: int) -> None:
    store = SecretStore(home, {KEY_VARIABLE: key})
    store.set("A", "value-number-0", 1)
    for number in range(1, times + 1):
        before = store.values()
        new = f"value-number-{number}"
        if not (child := os.fork()):
            store.set("A", new, number)
            os._exit(0)
        time.sleep(_STEP_S * number)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        after = store.values()
        assert after in (before, before | {"A": new}), after
    store.set("A", "value-at-the-end", 1)  # what the killed ones left is in nobody's way
    print(times, "killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
