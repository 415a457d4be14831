"""Identities of callers, by token and by certificate; roles; names of datastores."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.serving.net.access_file import add_token, remove_token
from suffolk.serving.net.authenticator import CHECK_SECONDS, Authenticator
from suffolk.serving.net.identity import OPERATOR, STRANGER, Identity, Role, caller, set_caller
from suffolk.serving.net.url import check_store_name, short_name, tenant_of


def test_without_a_file_every_caller_is_the_operator() -> None:
    authenticator = Authenticator(None)
    assert authenticator.identify("") is authenticator.identify("Bearer x", ["y"]) is OPERATOR
    assert OPERATOR.has("anything", Role.ADMIN)


def test_tokens_and_subjects(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    token = add_token(file, "alice", {"acme": Role.READ})
    with file.open("a") as opened:
        opened.write('[[subject]]\nname = "worker-1"\nroles = { beta = "append" }\n')
    authenticator = Authenticator(file)
    assert authenticator.identify(f"Bearer {token}").name == "alice"
    assert authenticator.identify(f"bearer  {token} ", ["worker-1"]).name == "alice"
    assert authenticator.identify("", ["other", "worker-1"]).tenant == "beta"
    for header in (token, "Bearer", "Bearer x", f"Basic {token}"):
        with pytest.raises(PermissionDenied, match="the token is wrong or was removed; send") as caught:
            authenticator.identify(header, ["worker-1"])  # a wrong token is never ignored
        assert token not in str(caught.value)
    with pytest.raises(PermissionDenied, match="no token was sent"):
        authenticator.identify("", ["other"])


def test_a_changed_file_is_read_again_and_a_broken_one_is_not_taken_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, now = tmp_path / "access.toml", [0.0]
    alice, bob = (f"Bearer {add_token(file, name, {'acme': Role.READ})}" for name in ("alice", "bob"))
    authenticator = Authenticator(file, lambda: now[0])
    remove_token(file, "alice")
    assert authenticator.identify(alice).name == "alice"
    now[0] += CHECK_SECONDS
    with pytest.raises(PermissionDenied):
        authenticator.identify(alice)
    assert authenticator.identify(bob).name == "bob"
    file.write_text("[")
    now[0] += CHECK_SECONDS
    assert authenticator.identify(bob).name == "bob"
    assert "no TOML" in caplog.text
    assert "the rules before stay in force" in caplog.text
    file.unlink()
    with pytest.raises(NotFound):
        authenticator.reload()
    assert authenticator.identify(bob).name == "bob"
    with pytest.raises(NotFound):
        Authenticator(file)


def test_each_role_includes_those_before_it() -> None:
    identity = Identity("x", {"acme": Role.APPEND, "beta": Role.READ})
    granted = [
        (tenant, role) for tenant in ("acme", "beta", "*", "other") for role in Role if identity.has(tenant, role)
    ]
    assert granted == [("acme", Role.READ), ("acme", Role.APPEND), ("beta", Role.READ)]
    identity.require("acme", Role.APPEND)
    with pytest.raises(PermissionDenied, match="x lacks the role admin in tenant acme"):
        identity.require("acme", Role.ADMIN)
    with pytest.raises(PermissionDenied, match="lacks the role read in every tenant"):
        identity.require("*", Role.READ)
    assert Identity("y", {"*": Role.READ, "acme": Role.ADMIN}).has("other", Role.READ)
    assert not Identity("y", {"*": Role.READ, "acme": Role.ADMIN}).has("other", Role.APPEND)


def test_the_caller_is_that_of_the_thread_or_task() -> None:
    found: list[Identity] = []
    thread = threading.Thread(target=lambda: found.append(caller()))
    thread.start()
    thread.join()
    assert found == [STRANGER]  # code that no server guards has no rights

    async def serve() -> None:
        set_caller(OPERATOR)
        found.append(await asyncio.to_thread(caller))

    asyncio.run(serve())
    assert found[1] is OPERATOR


def test_names_of_datastores() -> None:
    assert [tenant_of(name) for name in ("wiki", "default/wiki", "acme/wiki", "")] == [
        "default",
        "default",
        "acme",
        "default",
    ]
    assert [short_name(name) for name in ("wiki", "default/wiki", "acme/wiki")] == ["wiki", "wiki", "acme/wiki"]
    assert check_store_name("default/a.b_c-1", "x") == "a.b_c-1"
    for name in ("", "/", "a/", "/a", "a/b/c", "ä", "a b", "a" * 129):
        with pytest.raises(InvalidArgument, match=r"stores: .* cannot name a datastore; write NAME or TENANT/NAME"):
            check_store_name(name, "stores")
