"""The access file: tokens, subjects and quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.net.access_file import add_token, parse_roles, read_access_file, remove_token
from suffolk.serving.net.identity import Role

TOKEN = '[[token]]\nid = "0123456789abcdef"\nname = "a"\nhash = "' + "0" * 64 + '"\nroles = { acme = "read" }\n'


def test_tokens_are_added_found_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    tokens = {name: add_token(file, name, {"acme": Role.APPEND, "*": Role.READ}) for name in ("alice", 'bob "b"')}
    rules = read_access_file(file)
    for name, token in tokens.items():
        found = rules.find_token(token)
        assert found is not None
        assert (found.name, dict(found.roles)) == (name, {"acme": Role.APPEND, "*": Role.READ})
        assert token not in file.read_text()
        assert token.rpartition("_")[2] not in file.read_text()
    other = tokens["alice"].rpartition("_")[0] + "_" + tokens['bob "b"'].rpartition("_")[2]
    for wrong in (
        "",
        "x",
        "suffolk__",
        tokens["alice"][:-1],
        tokens["alice"] + "0",
        other,
        other.replace("suffolk", "x"),
    ):
        assert rules.find_token(wrong) is None
    assert file.stat().st_mode & 0o777 == 0o600
    remove_token(file, "alice")
    rules = read_access_file(file)
    assert rules.find_token(tokens["alice"]) is None
    assert rules.find_token(tokens['bob "b"']) is not None
    remove_token(file, next(iter(rules.tokens)))
    assert not read_access_file(file).tokens


def test_what_people_write_into_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    before = '# ours\n[tenant.acme]\ncalls_per_second = 5\n\n[[subject]]\nname = "w"\nroles = { acme = "admin" }\n'
    file.write_text(before)
    token = add_token(file, "alice", {"acme": Role.READ})
    rules = read_access_file(file)
    assert rules.find_token(token) is not None
    assert rules.quotas["acme"].calls_per_second == 5
    remove_token(file, "alice")
    assert file.read_text().rstrip() == before.rstrip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "no TOML"),
        ("tokens = 1", r"unknown key 'tokens' .did you mean token\?.; the keys are token, subject, tenant"),
        ("token = 1", r"token must be a list of tables; write \[\[token\]\] above each"),
        (TOKEN.replace('name = "a"\n', ""), r"token\[0\] has no name; it needs id, name, hash, roles"),
        (TOKEN + "x = 1\n", r"token\[0\]: unknown key 'x'"),
        (TOKEN.replace("0123456789abcdef", "0"), r"token\[0\].id must have 16 hexadecimal digits"),
        (TOKEN.replace("0" * 64, "f"), r"token\[0\].hash must have 64 hexadecimal digits"),
        (TOKEN.replace('"a"', "3"), r"token\[0\].name must be a text of 1 to 256"),
        (TOKEN.replace('{ acme = "read" }', "{}"), r"token\[0\].roles must be a table"),
        (TOKEN.replace('"read"', '"root"'), "the role of acme is 'root'; it must be one of read, append, admin"),
        (TOKEN.replace("acme", '"a/b"'), "'a/b' cannot name a tenant"),
        (TOKEN + TOKEN, r"token\[1\].id: another token has it"),
        ("[tenant]\na = 1", r"tenant must hold tables, such as \[tenant.acme\]"),
        ("[tenant.a]\nspeed = 1", "tenant.a: unknown key 'speed'; the keys are calls_per_second"),
        ("[tenant.a]\ncalls_per_second = -1", "tenant.a: calls_per_second is -1.0; it must be 0 or more"),
        ("[tenant.a]\ncalls_per_second = true", "tenant.a: calls_per_second is True"),
        ("[tenant.a]\ncalls_per_second = nan", "tenant.a: calls_per_second is nan"),
    ],
)
def test_malformed_files_have_one_clear_error(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=f"access file {file}.*{message}"):
        read_access_file(file)


def test_a_folder_is_no_access_file(tmp_path: Path) -> None:
    """Regression: the advice was to make the file with the command that was run."""
    for edit in (read_access_file, lambda path: add_token(path, "alice", {"acme": Role.READ})):
        with pytest.raises(InvalidArgument, match=f"it is a folder; name a file, such as {tmp_path}/access.toml$"):
            edit(tmp_path)


def test_wrong_edits_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    with pytest.raises(NotFound, match="access.toml: it cannot be read: No such file.*'suffolk token add' makes one"):
        read_access_file(file)
    add_token(file, "alice", {"acme": Role.READ})
    before = file.read_text()
    with pytest.raises(InvalidArgument, match="a token has the name 'alice' already"):
        add_token(file, "alice", {"acme": Role.READ})
    with pytest.raises(InvalidArgument, match="name must be a text of 1 to 256 printable"):
        add_token(file, "a\nb", {"acme": Role.READ})
    with pytest.raises(NotFound, match="no token has the name or id 'bob'"):
        remove_token(file, "bob")
    assert file.read_text() == before
    with pytest.raises(InvalidArgument, match="--role is 'acme'; give TENANT=ROLE"):
        parse_roles(["acme"], "--role")
    with pytest.raises(InvalidArgument, match="--role: '' cannot name a tenant"):
        parse_roles(["=read"], "--role")
