"""Tests ``suffolk serve`` and ``suffolk lookup`` as processes: start, answers, stop, kill, hang, and recovery."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from tests.support import processes
from tests.support.brute_force import assert_same_tree
from tests.support.draft_server import drafted
from tests.support.forked import running, suffolk
from tests.support.processes import WAIT
from tests.support.stores import make_store, word_tokenizer
from tests.support.waiting import HANG, until

DOCUMENTS = [[1, 2, 3, 4, 1, 2, 5] * 20, [2, 3, 4, 9] * 20]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "wiki"
    make_store(path, [DOCUMENTS], vocab_size=40).close()
    return path


def serve(store: Path, *words: str) -> tuple[str, ...]:
    return ("serve", str(store), "--http", "127.0.0.1:0", *(words or ("--listen", "127.0.0.1:0")))


def test_serve_answer_and_stop(store: Path, tmp_path: Path) -> None:
    local = open_datastore(store)
    path = tmp_path / "s.sock"
    with processes.running(
        "serve", f"code={store}", *serve(store, "--listen", "127.0.0.1:0", "--listen", f"unix:{path}")[1:]
    ) as server:
        assert re.fullmatch(
            rf"serving code,wiki on grpc 127\.0\.0\.1:\d+, grpc unix:{path}, http 127\.0\.0\.1:\d+", server.line
        )
        for url in (f"grpc://{server.endpoint()}/wiki", f"grpc+unix://{path}#code"):
            remote = connect(url, HANG)
            assert_same_tree(remote.draft([1, 2]), local.draft([1, 2]))
            remote.close()
        wiki = f"grpc://{server.endpoint()}/wiki"
        asked = suffolk("lookup", wiki, "--ids", "1", "2", "3", "--json")
        found = json.loads(asked.stdout)
        assert (asked.returncode, (found["match_length"], found["match_count"])) == (0, local.lookup([1, 2, 3]))
        asked = suffolk("lookup", wiki, "--ids", "1", "2", "--draft", "--max-nodes", "3", "--json")
        assert json.loads(asked.stdout)["draft"]["tokens"] == local.draft([1, 2], max_nodes=3).tokens.tolist()
        asked = suffolk("info", f"grpc://{server.endpoint()}/code", "--json")
        assert json.loads(asked.stdout)["tokens"] == local.info()["tokens"]
        with urllib.request.urlopen(f"http://{server.endpoint('http')}/readyz", timeout=WAIT) as reply:
            assert reply.status == 200
        server.process.terminate()
        output, errors = server.process.communicate(timeout=WAIT)
        assert server.process.returncode == 0, errors
        assert output == ""
        assert "Traceback" not in errors
        assert not path.exists()


def test_sighup_reads_the_settings_again(store: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("grace = 3\nmax_concurrent = 4\n")
    with running(*serve(store), "--config", str(config)) as server:
        assert server.process.stderr is not None
        for text, lines in (
            (
                "grace = 7\nmax_concurrent = 5\n",
                ["grace is 7.0 now", "max_concurrent has changed; restart the server to"],
            ),
            (
                "grace = -1\n",
                [f"the settings cannot be read, and what was there stays in force: {config}: grace is -1.0; "],
            ),
            ("grace = 8\nmax_concurrent = 5\n", ["grace is 8.0 now"]),
        ):
            config.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            for line in lines:
                assert line in server.process.stderr.readline()
            if "stays" not in lines[0]:
                assert "reload: read the settings again" in server.process.stderr.readline()
        remote = connect(f"grpc://{server.endpoint()}", HANG)
        assert remote.lookup([1, 2]).length == 2
        remote.close()
        code, errors = server.stop(signal.SIGTERM)
        assert (code, "8.0 s of grace" in errors) == (0, True)


def test_sighup_adds_datastores(store: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "news", [[[7, 8, 9]]], vocab_size=40).close()
    config = tmp_path / "serve.toml"
    config.write_text(f'stores = ["{store}"]\n')
    with running("serve", "--config", str(config), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0") as server:

        def reload(*stores: Path | str) -> list[str]:
            config.write_text(f"stores = {json.dumps(list(map(str, stores)))}\n")
            server.process.send_signal(signal.SIGHUP)
            assert server.process.stderr is not None
            lines: list[str] = []
            while not lines or "the settings" not in lines[-1]:
                lines.append(server.process.stderr.readline())
            return lines

        wiki = connect(f"grpc://{server.endpoint()}/wiki", HANG)
        assert "there is no such folder" in reload(store, tmp_path / "none")[-1]
        assert "read the settings again" in reload(store, tmp_path / "news")[-1]
        news = connect(f"grpc://{server.endpoint()}/news", HANG)
        assert (wiki.lookup([1, 2]).length, news.lookup([7, 8]).length) == (2, 2)
        with urllib.request.urlopen(f"http://{server.endpoint('http')}/metrics", timeout=WAIT) as reply:
            assert b'suffolk_datastore_tokens{datastore="news"} 3.0' in reply.read()
        assert "has the name 'wiki' already" in reload(store, tmp_path / "news", f"wiki={tmp_path}/news")[-1]
        assert any("is still served; restart" in line for line in reload(store))
        assert news.lookup([7, 8]).length == 2
        wiki.close()
        news.close()
        assert server.stop(signal.SIGTERM)[0] == 0


def test_json_logs_name_the_request(store: Path) -> None:
    with running(*serve(store), "--set", "log_format=json", "--set", "log_requests=true") as server:
        asked = urllib.request.Request(
            f"http://{server.endpoint('http')}/v1/lookup", b'{"contexts": [[1, 2]]}', {"X-Request-Id": "mine-1"}
        )
        with urllib.request.urlopen(asked, timeout=WAIT) as reply:
            assert reply.headers["X-Request-Id"] == "mine-1"
        lines = [json.loads(line) for line in server.stop(signal.SIGTERM)[1].splitlines()]
    [call] = [line for line in lines if line["logger"] == "suffolk.requests"]
    assert (call["request_id"], call["method"], call["transport"], call["code"]) == ("mine-1", "Lookup", "http", "OK")
    assert any("stopping: 0 calls in flight" in line["message"] for line in lines)


def test_stop_under_load_answers_or_says_unavailable(store: Path) -> None:
    expected = open_datastore(store).draft([1, 2])
    with running(*serve(store)) as server:
        remote = connect(f"grpc://{server.endpoint()}", HANG)
        answered = []

        def ask() -> None:
            while True:
                try:
                    answered.append(remote.draft([1, 2]))
                except Unavailable:
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) >= 50)
        server.process.send_signal(signal.SIGINT)
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        assert server.process.wait(WAIT) == 0
        for tree in answered:
            assert_same_tree(tree, expected)


STUCK = """
import logging
import threading
from suffolk.serving.store.draft_service.server import DraftServer, DraftServerConfig
from suffolk.serving.net.server import run_until_signal
from suffolk.serving.net.endpoint import Endpoint
from tests.support.brute_force import BruteForceRetriever
retriever = BruteForceRetriever([[1, 2, 3]], 9)
retriever.gate.clear()
logging.basicConfig(level=logging.INFO)
threading.Thread(target=lambda: print("entered", retriever.entered.wait(), flush=True), daemon=True).start()
run_until_signal(DraftServer(DraftServerConfig((Endpoint("127.0.0.1", 0),), grace=600), {"wiki": retriever}))
"""


def test_second_signal_forces() -> None:
    """The test sends each signal only when the server is in the state that it needs, because loaded machines are slow."""
    with processes.running(command=(sys.executable, "-c", STUCK)) as server:
        remote = connect(f"grpc://{server.endpoint()}", HANG)
        errors: list[SuffolkError] = []

        def ask() -> None:
            try:
                remote.draft([1])
            except SuffolkError as error:
                errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert server.process.stdout is not None
        assert server.process.stderr is not None
        assert server.process.stdout.readline() == "entered True\n"
        server.process.terminate()
        assert any("stopping: 1 calls in flight" in line for line in server.process.stderr)
        with pytest.raises(subprocess.TimeoutExpired):  # the server waits for the call in flight
            server.process.wait(1)
        server.process.terminate()
        assert server.process.wait(WAIT) == -signal.SIGTERM
        asking.join(WAIT)
        assert type(errors[0]) is Unavailable


def test_killed_hung_and_back(store: Path) -> None:
    with running(*serve(store)) as server:
        endpoint = server.endpoint()
        remote = connect(f"grpc://{endpoint}", 0.1)
        drafter = DatastoreDrafter(remote, remote.vocab_size, prefetch=False)
        failures = drafter.failures.by_reason
        until(lambda: drafted(drafter, [1, 2]) > 0)
        before = failures["DeadlineExceeded"]
        server.process.send_signal(signal.SIGSTOP)  # the server hangs: its port is open, but it does not answer
        until(lambda: drafted(drafter, [1, 2]) == 0)  # threads on other cores can answer once more
        for _ in range(30):
            assert drafted(drafter, [1, 2]) == 0
        hung = failures.total()
        assert failures["DeadlineExceeded"] - before < 20  # the open breaker made the other calls fail fast
        server.process.send_signal(signal.SIGCONT)
        until(lambda: drafted(drafter, [1, 2]) > 0)
        server.process.kill()
        server.process.wait(WAIT)
        for _ in range(30):
            assert drafted(drafter, [1, 2]) == 0
        assert failures.total() >= hung + 30
        with running(*serve(store, "--listen", endpoint)):
            until(lambda: drafted(drafter, [1, 2]) > 0)
        remote.close()


def test_killed_server_leaves_a_socket_that_the_next_one_takes(store: Path, tmp_path: Path) -> None:
    words = serve(store, "--listen", f"unix:{tmp_path}/s.sock")
    with running(*words) as server:
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o600
        server.process.kill()
        server.process.wait(WAIT)
    assert (tmp_path / "s.sock").exists()
    with running(*words):
        remote = connect(f"grpc+unix://{tmp_path}/s.sock", HANG)
        assert remote.lookup([1, 2]).length == 2
        remote.close()


def test_port_in_use_is_one_line_and_exit_2(store: Path) -> None:
    with running(*serve(store)) as server:
        again = suffolk(*serve(store, "--listen", server.endpoint()))
        assert (again.returncode, again.stdout) == (2, "")
        assert again.stderr == (
            f"suffolk: --listen: {server.endpoint()} is in use by another process; stop it or choose another address\n"
        )
        again = suffolk("serve", str(store), "--listen", "127.0.0.1:0", "--http", server.endpoint("http"))
        assert again.returncode == 2
        assert again.stderr == (
            f"suffolk: --http: {server.endpoint('http')} is in use by another process; stop it or choose another address\n"
        )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("serve", "STORE", "--listen", "nonsense"), "--listen: 'nonsense' is not HOST:PORT"),
        (
            ("serve", "STORE", "--listen", "0.0.0.0:0"),
            "would expose plaintext to other machines; give --tls-cert and --tls-key",
        ),
        (("serve", "STORE", "--tls-cert", "a.pem"), "--tls-cert and --tls-key belong together"),
        (("serve", "STORE", "--tls-client-ca", "a.pem"), "--tls-client-ca needs --tls-cert and --tls-key"),
        (("serve", "STORE", "--tls-cert", "/no.pem", "--tls-key", "/no.pem"), "/no.pem: cannot read the TLS file"),
        (("serve", "STORE", "STORE"), "has the name 'wiki' already; write NAME=PATH to give another"),
        (("serve", "STORE", "--set", "max_concurrent=0"), "max_concurrent is 0; it must be between 1 and 1024"),
        (("serve", "/no/such/store"), "/no/such/store"),
        (("lookup", "http://x", "--ids", "1"), "http://x: not the URL of a draft service or worker"),
        (
            ("lookup", "grpc://127.0.0.1:CLOSED", "--ids", "1"),
            "nothing listens there; start the draft service or correct the address",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: tuple[str, ...], text: str, store: Path) -> None:
    with socket.socket() as bound:  # bound, not listening
        bound.bind(("127.0.0.1", 0))
        closed = str(bound.getsockname()[1])
        ended = suffolk(*(word.replace("STORE", str(store)).replace("CLOSED", closed) for word in words))
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("suffolk: ")
    assert ended.stderr.count("\n") == 1
    assert text in ended.stderr


@pytest.mark.parametrize("command", ["serve", "lookup"])
def test_help_has_examples(command: str) -> None:
    ended = suffolk(command, "--help")
    assert ended.returncode == 0
    assert "examples:" in ended.stdout


def test_a_live_datastore_outlives_a_killed_server(store: Path, tmp_path: Path) -> None:
    words = word_tokenizer()
    words.save(str(tmp_path / "tokenizer.json"))
    command = serve(store, "--live", f"team/chat={tmp_path / 'chat'}", "--listen", "127.0.0.1:0")
    refused = suffolk(*command)
    assert refused.returncode == 2
    assert "there is no datastore; add --live-tokenizer MODEL to make one" in refused.stderr
    with running(*command, "--live-tokenizer", str(tmp_path / "tokenizer.json")) as server:
        with connect(f"grpc://{server.endpoint()}/team/chat", HANG) as chat:
            chat.append("the cat sat", group="g")
            chat.append("the cat on", id="b")
            assert len(chat.draft("the cat")) == 2
        server.process.kill()
    with running(*command) as server, connect(f"grpc://{server.endpoint()}/team/chat", HANG) as chat:
        assert len(chat.draft("the cat")) == 2
        assert chat.delete(ids=["b"]).documents == 1
        assert chat.flush() is None  # documents of groups stay in memory
        assert [chat.decode([token]) for token in chat.draft("the cat").tokens] == ["sat"]
