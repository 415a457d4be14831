"""Files and folders as users have them: with a byte order mark, with odd names, and as links to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suffolk
from suffolk.benchmarks.prompts import load_prompts
from suffolk.build_index.chat_template import find_chat_template
from suffolk.build_index.documents import parse_documents
from suffolk.cli.commands import find_command
from suffolk.cli.main import main
from suffolk.cli.options.config_file import read_toml
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import read_options
from suffolk.cli.options.setting import settings_of
from suffolk.cli.serve import parse_stores
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.tokenizer import load_tokenizer
from suffolk.serving.clients.fanout.topology import read_topology
from suffolk.serving.cluster.config import read_config
from suffolk.serving.net.access_file import add_token, read_access_file
from suffolk.serving.net.channel import read_token
from suffolk.serving.net.tls import TlsFiles, check_files
from tests.support.build_blocks import blocks, options
from tests.support.building import tokenizer_json, write_tokenizer
from tests.support.stores import make_store

TOPOLOGY = '{"shards": [{"replicas": [{"url": "grpc://a:1/code"}]}]}'
FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings.toml": ('listen = "127.0.0.1:1"\n', read_toml),
    "prompts.jsonl": ('{"prompt": "x"}\n', lambda path: load_prompts([path], "chat", None, 0)),
    "token": ("suffolk_1_secret\n", lambda path: read_token(str(path))),
    "tokenizer.json": (tokenizer_json(), lambda path: load_tokenizer(path).get_vocab_size()),
    "chat_template.jinja": ("{{ messages }}", lambda path: find_chat_template(str(path.parent))),
    "tokenizer_config.json": ('{"chat_template": "{{ x }}"}', lambda path: find_chat_template(str(path.parent))),
    "notes.txt": ("text", lambda path: [parse_documents(each.payload, options(path)).texts for each in blocks(path)]),
    "topology.json": (TOPOLOGY, read_topology),
}


@pytest.mark.parametrize("name", FILES)
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, name: str) -> None:
    content, read = FILES[name]
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    (tmp_path / name).write_text(content)
    expected = read(tmp_path / name)
    (tmp_path / name).write_bytes(BOM_UTF8 + content.encode())
    assert repr(read(tmp_path / name)) == repr(expected)


@pytest.mark.parametrize("read", [read_toml, read_access_file])
def test_settings_in_utf_16_are_refused_with_what_to_do(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """Windows PowerShell writes UTF-16 with ``>``."""
    file = tmp_path / "settings.toml"
    file.write_text("slots = 1\n", "utf-16")
    with pytest.raises(SuffolkError, match=r"settings\.toml: (it )?is not UTF-8; save it as UTF-8$"):
        read(file)


SETTINGS: dict[str, Callable[[Path], object]] = {
    "--config": read_toml,
    "token_file": lambda path: read_token(str(path)),
    "access file": read_access_file,
    "shards": read_topology,
    "TLS file": lambda path: check_files(TlsFiles(str(path), str(path))),
    "cluster": read_config,
    "--prediction": lambda path: main(["generate", "--model", "x", "--prediction", str(path), "p"]),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "pipe"])
def test_settings_of_a_device_or_pipe_are_refused(
    tmp_path: Path, name: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: /dev/zero filled the memory, and a named pipe without a writer blocked for ever."""
    if path == "pipe":
        os.mkfifo(tmp_path / path)
    try:
        SETTINGS[name](tmp_path / path)
    except SuffolkError as error:
        message = str(error)
    else:
        message = capsys.readouterr().err
    assert "it is a device or pipe, and no file" in message
    assert len(message.splitlines()) == 1


def test_settings_may_come_from_a_pipe_of_the_shell() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"listen = '127.0.0.1:1'")
    os.close(writer)
    assert read_toml(Path(f"/dev/fd/{reader}")) == {"listen": "127.0.0.1:1"}
    os.close(reader)


def test_an_access_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    add_token(file, "alice", {"*": "read"})
    file.write_bytes(BOM_UTF8 + file.read_bytes())
    token = add_token(file, "bob", {"*": "read"})
    identity = read_access_file(file).find_token(token)
    assert identity is not None
    assert len(read_access_file(file).tokens) == 2


def test_an_equals_sign_in_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lang=en/wiki").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in (f"{tmp_path}/lang=en/wiki", "lang=en/wiki", "./lang=de/wiki", "/a=b/wiki", "~/a=b/wiki"):
        assert parse_stores([path]) == {"wiki": path}
        assert parse_stores([f"code={path}"]) == {"code": path}
    assert parse_stores(["team/code=store"]) == {"team/code": "store"}


def test_a_datastore_in_a_folder_with_the_name_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "x.json", [[[1, 2, 3]]], vocab_size=9).close()
    with suffolk.open(f"{tmp_path}/x.json") as store:
        assert store.info()["tokens"] == 3
    assert main(["lookup", f"{tmp_path}/x.json", "--ids", "1", "2"]) == 0
    assert "match length" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["link", "link/deeper"])
@pytest.mark.parametrize(
    "words",
    [
        ["build", "--vocab-size", "9", "tokens.bin", "--output", "OUT"],
        ["snapshot", "store", "OUT"],
        ["pull", "file:///REMOTE", "OUT"],
    ],
)
def test_an_output_that_is_a_link_to_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("gone")
    (tmp_path / "tokens.bin").write_bytes(b"\1\0\2\0")
    make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=9).close()
    assert main(["push", "store", f"file://{tmp_path}/remote"]) == 0
    named = {"OUT": place, "file:///REMOTE": f"file://{tmp_path}/remote"}
    assert main([named.get(word, word) for word in words]) == 2
    error = capsys.readouterr().err
    assert f"output {place}: link is a link to gone, which does not exist; make that, or name another output" in error
    assert not (tmp_path / "gone").exists()


def test_a_folder_of_the_same_name_does_not_hide_the_package(tmp_path: Path) -> None:
    """Python takes any folder on its path as a package. A clone of the repository is such a folder."""
    (tmp_path / "suffolk").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = [sys.executable, "-c", "import suffolk; suffolk.open"]
    subprocess.run(program, cwd=tmp_path, env=environment, check=True, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        "build --tokenizer m --output out --skipped FILE FILE",
        "build --tokenizer m --output out --skipped FILE LINK",
        "replay FILE --datastore store --json FILE",
        "bench decode --model m --prompts FILE --json FILE",
        "generate --model m --prediction FILE --stats-json FILE x",
    ],
)
def test_an_input_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    file, link = tmp_path / "a.jsonl", tmp_path / "link"
    file.write_text('{"prompt": "x"}\n')
    link.symlink_to(file)
    assert main(words.replace("FILE", str(file)).replace("LINK", str(link)).split()) == 2
    assert "and would be overwritten; name another file" in capsys.readouterr().err
    assert file.read_text() == '{"prompt": "x"}\n'


def test_a_file_of_a_corpus_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    skipped = tmp_path / "src" / "skipped.jsonl"
    words = ["build", "--tokenizer", str(write_tokenizer(tmp_path)), "--output", str(tmp_path / "out"), "--replace"]
    (tmp_path / "src" / "a.txt").write_text("a text")
    assert main([*words, "--skipped", str(skipped), str(tmp_path / "src")]) == 0
    skipped.write_text('{"text": "kept"}\n')
    assert main([*words, "--skipped", str(skipped), str(tmp_path / "src")]) == 2
    assert "is a file of the corpora, and would be overwritten" in capsys.readouterr().err
    assert skipped.read_text() == '{"text": "kept"}\n'


def test_the_home_folder_is_found_where_a_shell_leaves_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_tokenizer(tmp_path)
    (tmp_path / "a.txt").write_text("a text")
    assert main(["build", "--tokenizer=~/tokenizer", "--output=~/out", "~/a.txt"]) == 0
    assert not (tmp_path / "~").exists()
    assert main(["info", "~/out"]) == 0
    assert parse_stores(read_options_of("serve code=~/out").stores) == {"code": f"{tmp_path}/out"}
    (tmp_path / "c.toml").write_text('datastore = ["~/nope"]\n')
    assert main(["generate", "--model", "m", "--config", "~/c.toml", "~/is no path here"]) == 2
    assert f"{tmp_path}/nope is no datastore" in capsys.readouterr().err


def read_options_of(words: str) -> Any:
    name, *rest = words.split()
    command = find_command(name)
    settings = settings_of(command.options, rest)
    return read_options(command.options, make_parser(name, "", "", settings), settings, name, rest)
