"""Clients of a cluster's front that know what each answer must be."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

STARTS = (
    "def read(path",
    "import os\n",
    "class Node:\n",
    "for i in range(",
    "return self.",
    "if name == ",
    "with open(",
    "abcabcab",
)
_CONNECT_TRIES = 100
"""Tries of a connection that is refused; 0.1 s lie between two. A refused request has reached no process."""


@dataclass(frozen=True)
class Outcome:
    """One request: when it began and ended (``time.time``), its worker if known, and its problem, empty if there was none."""

    began: float
    ended: float
    worker: str
    problem: str
    refused: int


class Load:
    """Threads that send requests to ``port`` until ``stop``. Every second one is streamed, and half have a temperature.

    ``pause``: seconds between the requests of a thread.
    """

    def __init__(self, port: int, model: str, tokens: int, clients: int, seed: int, pause: float = 0.0) -> None:
        self._port, self._model, self._tokens, self._pause = port, model, tokens, pause
        self.outcomes: list[Outcome] = []
        self._bodies = [self._body(text, heat) for text in STARTS for heat in (0.0, 0.8)]
        self._expected = [ask(port, body | {"suffolk": {"drafter": "none"}})[0] for body in self._bodies]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed + each,)) for each in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; their last requests are finished first."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _body(self, text: str, heat: float) -> dict[str, Any]:
        return {"model": self._model, "prompt": text, "max_tokens": self._tokens, "temperature": heat, "seed": 7}

    def _run(self, seed: int) -> None:
        choose = random.Random(seed)
        while not self._stopping.wait(self._pause):
            which = choose.randrange(len(self._bodies))
            began, refused, problem, worker = time.time(), 0, "", ""
            try:
                text, worker, refused = ask(self._port, self._bodies[which] | {"stream": choose.random() < 0.5})
                if text != self._expected[which]:
                    problem = f"another text: {text!r} instead of {self._expected[which]!r}"
            except (OSError, http.client.HTTPException, Broken) as error:
                problem, worker = f"{type(error).__name__}: {error}", getattr(error, "worker", "")
            self.outcomes.append(Outcome(began, time.time(), worker, problem, refused))


class Broken(Exception):
    """A request failed; ``worker``: the worker that had it, if known."""

    def __init__(self, text: str, worker: str) -> None:
        super().__init__(text)
        self.worker = worker


def ask(port: int, body: dict[str, Any]) -> tuple[str, str, int]:
    """The text of an answer, the worker that wrote it, and how often the connection was refused. Raises Broken, OSError."""
    connection, refused = http.client.HTTPConnection("127.0.0.1", port, timeout=120), 0
    while True:
        try:
            connection.connect()
            break
        except ConnectionRefusedError:
            refused += 1
            if refused == _CONNECT_TRIES:
                raise
            time.sleep(0.1)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    worker = reply.getheader("suffolk-worker", "")
    try:
        content = reply.read()
    except http.client.HTTPException as error:
        raise Broken(f"the stream broke ({error})", worker) from error
    finally:
        connection.close()
    if reply.status != 200:
        raise Broken(f"status {reply.status}: {content[:200]!r}", worker)
    if not body.get("stream"):
        return json.loads(content)["choices"][0]["text"], worker, refused
    lines = [line.removeprefix(b"data: ") for line in content.split(b"\n\n") if line]
    if lines[-1] != b"[DONE]":
        raise Broken("the stream ended early", worker)
    choices = [choice for line in lines[:-1] for choice in json.loads(line).get("choices", [])]
    return "".join(choice["text"] for choice in choices), worker, refused
