"""Tests ``suffolk generate`` as a process whose draft service is killed, or that is interrupted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.interrupts import default_interrupts
from tests.support.processes import ENVIRONMENT, ROOT, SUFFOLK, WAIT
from tests.support.quick_costs import known_costs
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny

PROMPT = "abcabcabcabc"
TOKENS = "1200"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*SUFFOLK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT, bufsize=0
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    make_store(tmp_path / "bytes", [[list(bytes(range(97, 123)) * 9)]], vocab_size=257).close()
    process = start("serve", str(tmp_path / "bytes"), "--listen", "127.0.0.1:0", "--http", "off")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(rb"grpc ([\d.:]+)", line)
        assert found, (line, process.poll())
        yield process, f"grpc://{found[1].decode()}/bytes"
    finally:
        process.kill()
        process.communicate()


def test_the_draft_service_is_killed_and_the_text_is_the_same(
    model: Path, service: tuple[subprocess.Popen[bytes], str]
) -> None:
    # beside passes of a second failing drafts are cheap, so more are asked for
    costs = f"costs={known_costs(model, 1.0)}"
    options = ["--model", str(model), "--max-new-tokens", TOKENS, "--temperature", "1", PROMPT]
    server, url = service
    drafting = ("--datastore", url, "--drafter", "datastore", "--set", "deadline_ms=200", "--set", costs)
    process = forked.start("generate", *drafting, *options)
    first = process.stdout.read(1)
    server.send_signal(signal.SIGKILL)
    rest, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0, errors
    found = re.search(r"(\d+) failed \((.*)\)", errors)
    assert found, errors
    assert int(found[1]) > 0
    reasons = found[2].split(", ")
    assert errors.count("continuing without its drafts") == len(reasons), errors  # each logged once
    plain = forked.suffolk("generate", "--drafter", "none", *options)
    assert plain.returncode == 0, plain.stderr
    assert first + rest == plain.stdout


def generating(model: Path) -> tuple[str, ...]:
    costs = f"costs={known_costs(model)}"
    return "generate", "--model", str(model), "--set", costs, "--max-new-tokens", TOKENS, PROMPT


def test_an_interrupt_ends_with_130(model: Path) -> None:
    process = forked.start(*generating(model))
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "suffolk: interrupted"
    assert "Traceback" not in errors


UNCLOSED = """
import sys
import suffolk

target = suffolk.Target.load(sys.argv[1])
engine = suffolk.Engine(target, slots=8, capacity=2000)
settings = suffolk.SamplingSettings(max_new_tokens=1500, ignore_eos=True)
generations = [engine.generate("abcabc", settings) for _ in range(8)]
next(generations[0])
"""


def test_a_process_may_end_while_an_engine_runs(model: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNCLOSED, str(model)], capture_output=True, cwd=ROOT, env=ENVIRONMENT, timeout=WAIT
    )
    assert ended.returncode == 0, ended.stderr


def test_a_second_interrupt_does_not_abort(model: Path) -> None:
    """In a process that is started by itself, since its whole end is tested."""
    with default_interrupts():
        process = start(*generating(model))
    assert process.stdout is not None
    process.stdout.read(1)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130, errors
