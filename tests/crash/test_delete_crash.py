"""A deletion that is killed at any file-system step leaves the old generation or the new one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import open_datastore
from tests.support.stores import make_store

DOCUMENTS = [[1, 2, 3], [1, 2, 4], [1, 2, 5]]


def killed_at(store: Path, step: int) -> bool:
    """Delete in a process that kills itself before its ``step``-th access to the store.

    Returns whether it reached that access.
    """
    if (child := os.fork()) == 0:
        left = step

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if any(str(argument).startswith(str(store)) for argument in arguments):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        delete(store, ["segment 0 document 1"], threads=1)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def live(store: Path) -> list[list[int]]:
    with open_datastore(store) as opened:
        opened.verify("full")
        assert opened.lookup([1, 2]).count == opened.info()["documents"]
        return [document.tokens.tolist() for document in opened.documents()]


def test_killed_at_every_step(tmp_path: Path) -> None:
    make_store(tmp_path / "whole", [DOCUMENTS], vocab_size=9).close()
    delete(tmp_path / "whole", ["segment 0 document 0"], threads=1)
    seen = []
    for step in range(1, 1000):
        store = tmp_path / "store"
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", store)
        if not killed_at(store, step):
            break
        seen.append(live(store))
        assert seen[-1] in (DOCUMENTS[1:], DOCUMENTS[2:])
        assert delete(store, ["segment 0 document 1"], threads=1).documents == len(seen[-1]) - 1
        assert live(store) == DOCUMENTS[2:]
    assert DOCUMENTS[1:] in seen
    assert DOCUMENTS[2:] in seen
