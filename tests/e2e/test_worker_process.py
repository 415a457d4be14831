"""Tests ``suffolk worker`` and ``suffolk generate --worker`` as processes: start, answers, stop, and errors on one line."""

from __future__ import annotations

import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.store.live_store.store import open_live_store
from suffolk.serving.worker.client import connect_worker
from tests.support import forked
from tests.support.forked import suffolk
from tests.support.processes import WAIT, Running, running
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny

PROMPT = "abcabcabcabc"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    path = tmp_path_factory.mktemp("stores") / "bytes"
    tokens = [list(range(66, 92)) * 9]
    make_store(path, [tokens], vocab_size=257, tokenizer=fingerprint(load_tokenizer(str(model)))).close()
    return path


@contextmanager
def working(model: Path, *words: str, run: Callable[..., Any] = forked.running) -> Iterator[Running]:
    free = () if "--http" in words else ("--http", "127.0.0.1:0")
    with run("worker", "--model", str(model), "--listen", "127.0.0.1:0", *free, *words) as worker:
        assert worker.line.startswith("serving tiny on grpc ")
        yield worker


def test_start_answer_and_stop(model: Path, store: Path) -> None:
    words = ("--max-new-tokens", "60", "--temperature", "0.8", PROMPT)
    here = suffolk("generate", "--model", str(model), "--drafter", "none", *words)
    rare = ("--set", "typical_floor=1e-9", "--set", f"grace={WAIT}")
    with working(model, "--datastore", str(store), "--datastore", str(store), "--slots", "2", *rare) as worker:
        url = f"grpc://{worker.endpoint()}"
        for drafter in ((), ("--drafter", "datastore"), ("--drafter", "none")):
            there = suffolk("generate", "--worker", url, *drafter, *words)
            assert there.returncode == 0, there.stderr
            assert there.stdout == here.stdout
            assert "tokens    60 (length)" in there.stderr
            assert "0 failed" in there.stderr
        there = suffolk("generate", "--worker", url, "--set", "verification=typical", "--set", "epsilon=1e-9", *words)
        assert there.returncode == 0, there.stderr
        assert "lossy     typical acceptance" in there.stderr
        with connect_worker(url) as client:
            assert client.info()["drafters"] == [
                "datastore",
                "hybrid",
                "parallel-samples",
                "prediction",
                "prompt-lookup",
            ]
            assert client.info()["default_drafter"] == "hybrid"
            with pytest.raises(InvalidArgument, match="model tiny takes 4096 in all"):  # and not where its folder is
                next(client.generate([1] * 4096))
        with urllib.request.urlopen(f"http://{worker.endpoint('http')}/metrics", timeout=WAIT) as reply:
            assert b"suffolk_generated_tokens_total 240.0" in reply.read()
        errors = stop_during_a_call(worker, signal.SIGTERM)
        assert re.search(
            r"model tiny, 2 slots x 4096 tokens, 0\.00 GiB of cache, queue of 64, drafters hybrid \(default\), datastore, ",
            errors,
        )


def stop_during_a_call(worker: Running, number: signal.Signals) -> str:
    """A signal lets the running call finish. Returns the worker's stderr."""
    with connect_worker(f"grpc://{worker.endpoint()}") as client:
        generation = client.generate(PROMPT, SamplingSettings(max_new_tokens=1000), "none")
        next(generation)
        worker.process.send_signal(number)
        list(generation)
        assert len(generation.tokens) == 1000
    _, errors = worker.process.communicate(timeout=WAIT)
    assert worker.process.returncode == 0, errors
    assert "stopping: 1 calls in flight, 120.0 s of grace" in errors
    assert "Traceback" not in errors
    return errors


def test_loading_ready_settings_read_again_and_interrupted(model: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
    bodies: list[str] = []
    ready = threading.Event()

    def ask() -> None:
        while not ready.is_set():
            with suppress(OSError):  # nothing listens yet, or between the two servers
                bodies.append(page(address))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        rare = ("--http", address, "--drafter", "none", "--set", f"grace={WAIT}")
        with working(model, *rare, run=running) as worker:
            assert page(address) == "ok\n"
            ready.set()
            asking.join()
            worker.process.send_signal(signal.SIGHUP)
            assert worker.process.stderr is not None
            assert any("reload: read the settings again" in line for line in worker.process.stderr)
            stop_during_a_call(worker, signal.SIGINT)
    finally:
        ready.set()
        asking.join()
    assert "starting: loading the model\n" in bodies
    assert set(bodies) <= {"starting: loading the model\n", "starting\n", "ok\n"}


def page(address: str) -> str:
    """The body of /readyz, whatever its status."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=WAIT) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def die(words: list[str]) -> int:
    """Run ``suffolk WORDS`` with a model that fails at its thirty-first pass."""
    load = Target.load

    def load_dying(*arguments: Any, **options: Any) -> Target:
        target = load(*arguments, **options)
        forward, calls = target.model.forward, iter(range(30))

        def fail_in_the_end(*arguments: Any, **options: Any) -> Any:
            if next(calls, None) is None:
                raise RuntimeError("the device is gone")
            return forward(*arguments, **options)

        target.model.forward = fail_in_the_end
        return target

    Target.load = staticmethod(load_dying)  # type: ignore[method-assign, assignment]
    return main(words)


def test_the_process_ends_with_1_when_its_engine_dies(model: Path) -> None:
    dying = partial(forked.running, function="tests.e2e.test_worker_process:die")
    with (
        working(model, "--drafter", "none", run=dying) as worker,
        connect_worker(f"grpc://{worker.endpoint()}") as client,
    ):
        with pytest.raises(Internal, match="RuntimeError: the device is gone"):
            list(client.generate(PROMPT, SamplingSettings(max_new_tokens=400)))
        _, errors = worker.process.communicate(timeout=WAIT)
        assert worker.process.returncode == 1
        last = "suffolk: the engine has died (RuntimeError: the device is gone); start the worker again"
        assert errors.splitlines()[-1] == last


def test_bad_input_is_one_line_and_exit_2(model: Path, store: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cases = [
            (
                ("--model", str(model), "--listen", f"127.0.0.1:{port}"),
                f"127.0.0.1:{port} is in use by another process",
            ),
            (("--model", str(model), "--http", f"127.0.0.1:{port}"), f"--http: 127.0.0.1:{port} is in use"),
            (("--model", str(tmp_path / "none")), "does not exist; name a folder"),
            (
                ("--model", str(model), "--drafter", "hybrid"),
                "--drafter hybrid needs something to draft from; add --datastore",
            ),
            (("--model", str(model), "--datastore", str(tmp_path)), str(tmp_path)),
            (("--model", str(model), "--slots", "0"), "--slots is 0; it must be between 1 and 1024"),
            (
                ("--model", str(model), "--slots", "1024", "--capacity", "16777216", "--set", "max_nodes=0"),
                "max_nodes is 0",
            ),
            (
                ("--model", str(model), "--http", "127.0.0.1:1", "--listen", "127.0.0.1:1"),
                "--http: 127.0.0.1:1 is already given to --",
            ),
            (("--model", str(model), "--listen", "0.0.0.0:0"), "would expose plaintext to other machines"),
        ]
        processes = [
            (suffolk("worker", "--listen", "127.0.0.1:0", "--http", "off", *words), text) for words, text in cases
        ]
    for ended, text in processes:
        errors = ended.stderr
        assert (ended.returncode, ended.stdout) == (2, ""), errors
        assert errors.startswith("suffolk: ")
        assert errors.count("\n") == 1, errors
        assert text in errors


def test_options_of_the_model_are_refused_with_a_worker() -> None:
    ended = suffolk("generate", "--worker", "grpc://127.0.0.1:1", "--dtype", "float32", "x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "suffolk: --dtype cannot be given with --worker, which has its own model and drafters; leave it out, or give --model\n"
    )
    ended = suffolk("generate", "--worker", "grpc://127.0.0.1:1", "x")
    assert ended.returncode == 2
    assert "grpc://127.0.0.1:1: " in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_help_has_examples() -> None:
    ended = suffolk("worker", "--help")
    assert ended.returncode == 0
    assert "examples:" in ended.stdout


def test_finished_texts_are_remembered_and_one_that_a_grace_of_zero_ends_is_not(model: Path, tmp_path: Path) -> None:
    words = ("--max-new-tokens", "80", "--drafter", "datastore", PROMPT)
    with working(model, "--remember", str(tmp_path / "chat"), "--set", "grace=0") as worker:  # the datastore is made
        url = f"grpc://{worker.endpoint()}"
        first, second = (suffolk("generate", "--worker", url, *words) for _ in range(2))
        assert first.returncode == second.returncode == 0, first.stderr + second.stderr
        assert first.stdout == second.stdout
        with urllib.request.urlopen(f"http://{worker.endpoint('http')}/metrics", timeout=WAIT) as reply:
            text = reply.read().decode()
        with connect_worker(url) as client:
            assert client.info()["datastores"] == ["chat"]
            generation = client.generate(PROMPT, SamplingSettings(max_new_tokens=4000))
            next(generation)
            code, errors = worker.stop(signal.SIGTERM)
            assert (code, "Traceback" in errors) == (0, False), errors
            with pytest.raises(Exception, match=str(worker.endpoint())):
                list(generation)
    assert 'suffolk_remembered_texts_total{outcome="appended"} 2.0' in text
    with open_live_store(tmp_path / "chat") as store:
        assert store.stats().documents == 2
