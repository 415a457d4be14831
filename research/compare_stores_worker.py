"""Builds, appends and drafts for ``research.compare_stores``, with the Suffolk of the checkout in PYTHONPATH.

It is run by its path, also with old checkouts, so it uses only ``suffolk.create``, ``suffolk.open`` and ``suffolk build``. It
reads one JSON object a line from stdin. First it answers with the package that it imported, then with the processor seconds and
the results of each order.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    options = json.loads(sys.stdin.readline())
    import suffolk

    folder, corpus, tokenizer = Path(options["folder"]), options["corpus"], options["tokenizer"]
    build = [sys.executable, "-m", "suffolk", "build", "--tokenizer", tokenizer, "--replace", "--output"]
    subprocess.run([*build, str(folder / "built"), corpus], check=True, stdout=subprocess.DEVNULL)
    documents, live = options["documents"], suffolk.create(folder / "live", tokenizer)
    with suffolk.open(folder / "built", "warm") as built, live:

        def append(count: int, turn: int) -> list[Any]:
            return [live.append(documents[(turn * count + each) % len(documents)]).documents for each in range(count)]

        def draft(count: int, turn: int) -> list[Any]:
            contexts = (documents[(turn * count + each) % len(documents)][:64] for each in range(count))
            return [built.draft(context).tokens.tolist() for context in contexts]

        def rebuild(count: int, turn: int) -> list[Any]:
            done = subprocess.run([*build, str(folder / "again"), corpus], check=True, stdout=subprocess.DEVNULL)
            return [done.returncode]

        work = {"append": append, "draft": draft, "build": rebuild}
        print(json.dumps({"package": suffolk.__file__}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            children, start = _children_seconds(), time.process_time()
            found = work[order["order"]](order["count"], order["turn"])
            seconds = time.process_time() - start + _children_seconds() - children
            print(json.dumps({"seconds": seconds, "found": found}), flush=True)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
