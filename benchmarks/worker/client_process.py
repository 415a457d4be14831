"""Sends requests to a worker from a separate process, as clients do: ``python -m`` this FILE.

FILE holds the fields of ``WorkerRequests`` as JSON. Prints one JSON line: the fields of ``StreamRun``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from suffolk.benchmarks.helper_process import helper_arguments
from suffolk.benchmarks.worker.requests import WorkerRequests, asking
from suffolk.benchmarks.worker.streams import run_streams


def main(file: str) -> None:
    """Send the requests and print the answers."""
    requests = WorkerRequests(**json.loads(Path(file).read_text()))
    print(json.dumps(asdict(run_streams(asking(requests), requests.prompts, requests.streams))))


if __name__ == "__main__":
    main(*helper_arguments(1, "suffolk bench worker"))
