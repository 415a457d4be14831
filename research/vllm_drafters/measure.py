"""Runs all methods in turn on the same prompts, compares their outputs, and kills the draft service in between."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from research.vllm_drafters.engine_process import EngineProcess, Ids, engine
from research.vllm_drafters.options import BOTH, NONE, SERVICE, SUFFOLK, VllmOptions
from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.benchmarks.service.load import stop_server
from suffolk.benchmarks.service.measure import cpu_seconds
from suffolk.datastore.errors import InvalidArgument, Unavailable

_OUTAGE_PROMPTS = 8
_OUTAGE_SECONDS = 0.4
"""Time after which the draft service is killed or restarted during generation."""
Run = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One batch of prompts, which each method answers."""

    group: str
    batch: int
    prompts: list[Ids]


def measure(options: VllmOptions, say: Say) -> dict[str, Any]:
    """Return the runs of all turns and methods, and the runs during the outage.

    Raises:
        InvalidArgument, NotFound: bad options or prompts.
        Unavailable: an engine or the draft service does not start.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    history, turns = _plan(options, tokenizer)
    methods = (NONE, *(each for each in options.methods if each != NONE))
    with ExitStack() as stack:
        engines: dict[str, EngineProcess] = {}
        for method in methods:
            if method not in (SUFFOLK, SERVICE, BOTH):
                say(f"engine {method}: starting")
                engines[method] = stack.enter_context(engine(method, options.threads, **options.arguments(method, [])))
        say(f"history: {sum(len(each.prompts) for each in history)} prompts")
        answers: list[Ids] = []
        for turn in history:
            answers += engines[NONE].generate(turn.prompts, options.max_tokens)["tokens"]
        texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in answers]
        stores = {each.name: each for each in options.datastores} or {"history": _build_history(options, texts)}
        service = stack.enter_context(closing(DraftProcess(stores)))
        service.start()
        folders = list(map(str, stores.values()))
        for method, found in ((SUFFOLK, folders), (BOTH, folders), (SERVICE, service.urls)):
            if method in methods:
                say(f"engine {method}: starting")
                shutil.rmtree(options.answers(method), ignore_errors=True)
                arguments = options.arguments(method, found)
                engines[method] = stack.enter_context(engine(method, options.threads, **arguments))
        for turn in history:
            for method in methods[1:]:
                engines[method].generate(turn.prompts, options.max_tokens)
        runs = _take_turns(turns, engines, service, options.max_tokens, say)
        outage = _outage(turns, engines, service, options.max_tokens, say) if SERVICE in methods else []
    return {"runs": runs, "outage": outage}


def _plan(options: VllmOptions, tokenizer: Any) -> tuple[list[_Turn], list[_Turn]]:
    """Split the prompts into turns for the history and measured turns. Each prompt occurs once."""
    by_group: dict[str, list[Ids]] = {}
    for each in load_prompts(options.prompts, "chat", None, options.seed):
        ids = encode_prompt(each, tokenizer, options.model)
        if len(ids) + options.max_tokens < 2048:
            by_group.setdefault(each.group, []).append(ids)
    history, turns = [], []
    largest = max(options.batches)
    for group, every in by_group.items():
        order = np.random.default_rng(options.seed).permutation(len(every))
        prompts = [every[place] for place in order[: options.limit]]
        known = round(len(prompts) * options.history)
        history += [_Turn(group, largest, each) for each in _chunks(prompts[:known], largest)]
        rest = prompts[known:]
        shares = np.array(options.batches) + 8.0  # larger batches get more prompts, but fewer relative to their size
        ends = np.round(np.cumsum(shares / shares.sum()) * len(rest)).astype(int)
        for batch, begin, end in zip(options.batches, [0, *ends], ends, strict=False):
            turns += [_Turn(group, batch, each) for each in _chunks(rest[begin:end], batch)]
    if not turns:
        raise InvalidArgument("no prompts are left to measure; give more prompts, or a smaller --history")
    return history, [turns[place] for place in np.random.default_rng(options.seed).permutation(len(turns))]


def _chunks(prompts: Sequence[Ids], size: int) -> list[list[Ids]]:
    return [list(prompts[start : start + size]) for start in range(0, len(prompts), size)]


def _build_history(options: VllmOptions, texts: Sequence[str]) -> Path:
    """Build a datastore from the answers to the history."""
    options.work.mkdir(parents=True, exist_ok=True)
    corpus, store = options.work / "history.jsonl", options.work / "history"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = [sys.executable, "-m", "suffolk", "build", "--tokenizer", options.model, "--output", str(store)]
    command += ["--replace"] if (store / "MANIFEST").is_file() else []
    if subprocess.run([*command, str(corpus)], stdout=subprocess.DEVNULL).returncode:
        raise Unavailable(f"the datastore of {corpus} could not be built; see the messages above")
    return store


def _take_turns(
    turns: Sequence[_Turn], engines: dict[str, EngineProcess], service: DraftProcess, max_tokens: int, say: Say
) -> list[Run]:
    runs: list[Run] = []
    names = list(engines)
    for number, turn in zip(count(), turns):
        replies: dict[str, Run] = {}
        for place in range(len(names)):
            method = names[(number + place) % len(names)]  # rotate, so that each method is first equally often
            before = service.cpu_seconds()
            replies[method] = engines[method].generate(turn.prompts, max_tokens)
            replies[method]["service_cpu_seconds"] = service.cpu_seconds() - before
        runs += [_run(method, turn, number, reply, replies[NONE]) for method, reply in replies.items()]
        times = ", ".join(f"{each['method']} {each['seconds']:.1f} s" for each in runs[-len(names) :])
        say(f"turn {number + 1} of {len(turns)}: {turn.group}, batch {turn.batch}: {times}")
    return runs


def _outage(
    turns: Sequence[_Turn], engines: dict[str, EngineProcess], service: DraftProcess, max_tokens: int, say: Say
) -> list[Run]:
    """Run the engine that asks the service with the service up, killed midway, down, and restarted midway."""
    prompts = [ids for turn in turns for ids in turn.prompts][:_OUTAGE_PROMPTS]
    turn = _Turn("outage", len(prompts), prompts)
    expected = engines[NONE].generate(prompts, max_tokens)
    runs = []
    for number, (name, change) in enumerate(
        [("up", None), ("killed", service.kill), ("down", None), ("restarted", service.start), ("up again", None)]
    ):
        engines[SERVICE].send(prompts, max_tokens)
        if change is not None:
            time.sleep(_OUTAGE_SECONDS)
            change()
        run = _run(SERVICE, turn, number, engines[SERVICE].receive(), expected) | {"phase": name}
        say(f"outage, {name}: {run['seconds']:.1f} s, {run['accepted_tokens']} accepted, identical: {run['identical']}")
        runs.append(run)
    return runs


def _run(method: str, turn: _Turn, number: int, reply: Run, plain: Run) -> Run:
    """Return the figures of a reply, without its tokens."""
    kept = {name: value for name, value in reply.items() if name != "tokens"}
    same = [own == other for own, other in zip(reply["tokens"], plain["tokens"], strict=True)]
    return {
        "turn": number,
        "method": method,
        "set": turn.group,
        "batch": turn.batch,
        "texts": len(same),
        "identical": sum(same),
        "tokens": sum(map(len, reply["tokens"])),
        "plain_seconds": plain["seconds"],
        "plain_cpu_seconds": plain["cpu_seconds"],
        **kept,
    }


class DraftProcess:
    """A process of ``suffolk serve`` for ``stores`` on a free local port. Not thread-safe."""

    def __init__(self, stores: Mapping[str, Path]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._stores = dict(stores)
        self._process: subprocess.Popen[str] | None = None

    @property
    def urls(self) -> list[str]:
        """The URLs, one for each datastore."""
        return [f"grpc://{self._address}/{name}" for name in self._stores]

    def start(self) -> None:
        """Start the service. Raises Unavailable if that fails."""
        command = [sys.executable, "-m", "suffolk", "serve", *(f"{name}={path}" for name, path in self._stores.items())]
        self._process = subprocess.Popen(
            [*command, "--listen", self._address, "--http", "off"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if "on grpc" not in self._process.stdout.readline():
            raise Unavailable(f"the draft service at {self._address} did not start; see its messages above")

    def kill(self) -> None:
        """Kill the service."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """Processor time of the running service so far."""
        return cpu_seconds(self._process.pid) if self._process else 0.0

    def close(self) -> None:
        """Stop the service."""
        if self._process is not None:
            stop_server(self._process)
