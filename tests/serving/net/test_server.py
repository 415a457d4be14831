"""A server stops when it is asked to, and reads its files again."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.server import ShutdownEvent
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.draft_server import serving
from tests.support.waiting import HANG

SIGNALLED = """
import random, signal
from suffolk.serving.net.server import ShutdownEvent
signal.signal(signal.SIGALRM, lambda *_: event.set())
for _ in range(300):
    event = ShutdownEvent()
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-5))
    event.wait()
"""


def test_a_handler_that_interrupts_the_wait_ends_it() -> None:
    """Regression: a signal just before the wait used to deadlock, because the handler needed the lock that the wait held."""
    assert subprocess.run([sys.executable, "-c", SIGNALLED], check=False, timeout=HANG).returncode == 0


def test_all_waiting_threads_return() -> None:
    event = ShutdownEvent()
    waiting = [threading.Thread(target=event.wait, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    event.set()
    for thread in waiting:
        thread.join(HANG)
    event.wait()
    assert not any(thread.is_alive() for thread in waiting)


def answers(server: DraftServer, folder: Path) -> tuple[bool, bool]:
    """Whether gRPC and HTTP answer a client with the authority and the certificate in ``folder``."""
    own = f"cert={folder}/client.pem&key={folder}/client.key"
    url = f"grpcs://{server.listening[0]}/wiki?deadline_ms=9000&ca={folder}/ca.pem&{own}"
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.load_cert_chain(f"{folder}/client.pem", f"{folder}/client.key")
    over_http = over_grpc = True
    try:
        connect(url).close()
    except SuffolkError as error:
        print(f"gRPC, {folder.name}: {error}")  # shown if the test fails
        over_grpc = False
    try:
        urllib.request.urlopen(f"https://{server.http}/readyz", timeout=HANG, context=context).close()
    except OSError:
        over_http = False
    return over_grpc, over_http


@needs_openssl
def test_certificates_and_authority_are_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new, used = (tmp_path / name for name in ("old", "new", "used"))
    for folder in (old, new):
        folder.mkdir()
        make_certificates(folder)
    shutil.copytree(old, used)
    files = TlsFiles(f"{used}/server.pem", f"{used}/server.key", f"{used}/ca.pem")
    with serving({"wiki": BruteForceRetriever([[1, 2, 3]], 9)}, tls=files) as server:
        assert (answers(server, old), answers(server, new)) == ((True, True), (False, False))
        shutil.copytree(new, used, dirs_exist_ok=True)
        assert answers(server, old) == (True, True)  # until they are read again
        server.reload()
        assert (answers(server, old), answers(server, new)) == ((False, False), (True, True))
        (used / "server.key").write_bytes((old / "server.key").read_bytes())
        server.reload()
        assert "the certificates cannot be read" in caplog.text
        assert answers(server, new) == (True, True)


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise InvalidArgument("tokens.toml: no TOML")

    done: list[str] = []
    with serving({"wiki": BruteForceRetriever([[1, 2, 3]], 9)}) as server:
        server.reloads |= {"tokens": fail, "others": lambda: done.append("others")}
        server.reload()
        assert "tokens cannot be read, and what was there stays in force: tokens.toml: no TOML" in caplog.text
        assert done == ["others"]
        server.set_grace(3.0)
        assert server.config.grace == 3.0
        with pytest.raises(InvalidArgument, match="grace is 601"):
            server.set_grace(601)
