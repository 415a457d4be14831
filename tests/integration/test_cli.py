"""The command line: help, versions, errors on one line, exit codes, and the commands that look into a datastore."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import suffolk
from datastore.manifest import tokenizer_name
from datastore.tokenizer import fingerprint
from datastore.version import __version__
from suffolk.cli import COMMANDS, main
from tests.stores import make_store

WORDS = ["the", "cat", "sat", "on", "mat", "dog"]


@pytest.fixture
def store_path(tmp_path):
    """A datastore of words with a tokenizer beside it."""
    documents = [[0, 1, 2, 3, 0, 4], [0, 5, 2, 3, 0, 4], [0, 1, 2]]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="the"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    mark = fingerprint(tokenizer)
    make_store(tmp_path / "store", [documents[:2], documents[2:]], vocab_size=6, tokenizer=mark).close()
    tokenizer.save(str(tmp_path / "store" / tokenizer_name(mark)))
    return str(tmp_path / "store")


def test_no_arguments_print_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_version_is_the_one_of_the_package(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"suffolk {__version__}" == f"suffolk {suffolk.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"suffolk {command}" in out
    assert "example" in out


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["frobnicate"])
    assert stop.value.code == 2
    assert "frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "--model", "M", "--dtype", "int8"], "argument --dtype: invalid choice: 'int8'"),
        (["generate", "--model", "M", "--temperature", "abc"], "argument --temperature: invalid float value: 'abc'"),
        (["generate", "--model", "M", "--worker", "W"], "argument --worker: not allowed with argument --model"),
        (["bench", "decode", "--limit", "x"], "argument --limit: invalid int value: 'x'"),
        (["build"], "the following arguments are required: CORPUS, --output"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(capsys, words, said):
    with pytest.raises(SystemExit) as stop:
        main(words)
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert err.startswith("suffolk: ")
    assert said in err
    assert err.count("\n") == 1
    command = " ".join(["suffolk", *words[: 2 if words[0] == "bench" else 1]]).removesuffix(" frobnicate")
    assert err.endswith(f"; see '{command} --help'\n")


@pytest.mark.parametrize("command", [["info"], ["verify"], ["lookup", "--ids", "1"]])
def test_a_missing_datastore_is_one_line_and_2(capsys, tmp_path, command):
    assert main([command[0], str(tmp_path / "nothing"), *command[1:]]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "nothing is no datastore" in err
    assert "suffolk build" in err


def test_info_shows_what_is_there(capsys, store_path):
    assert main(["info", store_path]) == 0
    assert "tokens           15\n" in capsys.readouterr().out
    assert main(["info", "--json", store_path]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 3


def test_info_shows_each_build_on_a_line(capsys, tmp_path):
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.arange(9))
    words = ["--output", str(tmp_path / "store")]
    assert main(["build", *words, "--vocab-size", "9", str(tmp_path / "0.npy")]) == 0
    assert main(["build", *words, "--append", str(tmp_path / "1.npy"), str(tmp_path / "0.npy")]) == 0
    capsys.readouterr()
    assert main(["info", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr().out
    found = re.search(r"^builds +2\n  20\S+: (.*)\n  20\S+: (.*)$", shown, re.MULTILINE)
    assert found is not None
    assert found.groups() == (f"{tmp_path}/0.npy", f"{tmp_path}/1.npy, {tmp_path}/0.npy")
    assert "{" not in shown


def test_verify_tells_sound_from_damaged(capsys, store_path):
    assert main(["verify", "--depth", "full", store_path]) == 0
    assert ": sound (full; generation 1, 2 segments," in capsys.readouterr().out
    with open(f"{store_path}/segments/000001.seg", "r+b") as file:
        file.seek(256)
        file.write(b"\x05")
    assert main(["verify", store_path]) == 1
    err = capsys.readouterr().err
    assert "damaged" in err
    assert "000001.seg: the checksum of bytes 0 to" in err


def test_lookup_shows_counts_texts_and_places(capsys, store_path):
    assert main(["lookup", store_path, "dog cat sat", "--min-match", "2"]) == 0
    out = capsys.readouterr().out
    assert "match length  2 of 3 tokens: 'cat sat'" in out
    assert "match count   2" in out
    assert "'on the mat'" in out
    assert "segment 0 document 0, token 1" in out
    assert "segment 1 document 0, token 1" in out
    assert main(["lookup", store_path, "--ids", "4", "4", "--json", "--min-match", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["match_length"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a text or --ids"),
        (["cat", "--ids", "1"], "give either a text or --ids"),
        (["--ids", "6"], "token id 6 at index 0 is out of range; the vocabulary has 6 ids"),
        (["cat", "--max-match", "60"], "above the order depth 64"),
        (["cat", "--top", "-1"], "--top is -1; it must be 0 to 1000"),
        (["cat", "--top", "100000"], "--top is 100000; it must be 0 to 1000"),
    ],
)
def test_lookup_refuses_bad_input_on_one_line(capsys, store_path, arguments, message):
    assert main(["lookup", store_path, *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_printing_a_version_loads_no_torch():
    code = "import sys, suffolk.cli\ntry: suffolk.cli.main(['--version'])\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["suffolk", __version__, "False"]


def test_a_closed_pipe_is_no_error(store_path):
    command = f"{sys.executable} -m suffolk info --json {store_path} | head -c 5"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_full_disk_behind_stdout_is_one_line_and_2(store_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "suffolk", "info", store_path], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        ("<&-", "there is no PROMPT, and stdin is closed; give one of them"),
        (">&-", "stdout is closed; send it to a file or to /dev/null"),
        ("< {bad}", "the prompt cannot be read: 'utf-8' codec can't decode byte 0xff in position 2"),
    ],
)
def test_streams_that_cannot_be_used_are_one_line_and_2(tmp_path, redirection, said):
    (tmp_path / "bad").write_bytes(b"ab\xff")
    command = f"{sys.executable} -m suffolk generate --model M {redirection.format(bad=tmp_path / 'bad')}"
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_would_go_to_a_closed_stderr_does_not_go_to_stdout(tmp_path):
    command = f"{sys.executable} -m suffolk info {tmp_path} 2>&-"
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_text_that_is_no_utf8_is_looked_up_all_the_same(capsys, store_path):
    assert main(["lookup", store_path, "cat \udcff\udcfe sat"]) == 0
    assert "match length" in capsys.readouterr().out


def test_lookup_sends_urls_to_the_client(capsys):
    assert main(["lookup", "grpc://127.0.0.1:1/x", "cat"]) == 2
    assert "suffolk client" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "5", "6"], "info takes no token ids and was given 2; leave them out"),
        (["lookup"], "lookup needs a context; give its token ids"),
        (["draft"], "draft needs a context; give its token ids"),
    ],
)
def test_client_refuses_ids_that_do_nothing_and_none_where_it_needs_them(capsys, words, said):
    assert main(["client", "grpc://127.0.0.1:1/x", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {said}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "--threads", "0", "x"], "--threads is 0"),
        (["generate", "--exit-layers", "0", "x"], "--exit-layers is 0; it must be 1 or more"),
        (["generate", "--levels", "draft-model:4", "x"], "level draft-model needs a model (on the command line"),
        (["worker", "--threads", "0"], "--threads is 0"),
        (["tune", "--threads", "0"], "--threads is 0"),
        (["tune", "--output", "."], "--output . is a folder; name a file"),
        (["train", "eagle", "--corpus", "x", "--output", "y", "--head-option", "zz=1"], "head eagle has no option zz"),
    ],
)
def test_what_no_model_could_be_used_with_is_refused_before_torch_is_loaded(words, said):
    code = "import sys; from suffolk.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = [sys.executable, "-c", code, *words, "--model", "/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert done.stderr.startswith(f"suffolk: {said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "--costs", "/nowhere/costs", "--model", "/nowhere", "x"], "costs /nowhere/costs: cannot be read"),
        (["worker", "--costs", "/nowhere/costs", "--model", "/nowhere"], "costs /nowhere/costs: cannot be read"),
        (["tune", "--slots", "0", "--model", "/nowhere"], "--slots is 0"),
        (
            ["generate", "--head", "/nowhere/head", "--model", "/nowhere", "x"],
            "head /nowhere/head: config.json cannot be",
        ),
        (
            ["train", "eagle", "--corpus", "/nowhere/text", "--model", "/nowhere", "--output", "/nowhere/new"],
            "corpus /nowhere/text: no such file or folder",
        ),
    ],
)
def test_files_that_are_not_there_are_refused_before_the_model_is_loaded(capsys, words, said):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {said}")
    assert err.count("\n") == 1


def test_verify_takes_folders_alone(capsys):
    assert main(["verify", "grpc://127.0.0.1:1/x"]) == 2
    err = capsys.readouterr().err
    assert err == "suffolk: grpc://127.0.0.1:1/x: verify needs the datastore's folder; run it where that folder is\n"


@pytest.mark.parametrize("name", ["MANIFEST", "segments/000000.seg"])
def test_verify_calls_a_folder_in_place_of_a_file_damage(capsys, store_path, name):
    Path(store_path, name).unlink()
    Path(store_path, name).mkdir()
    assert main(["verify", store_path]) == 1
    assert capsys.readouterr().err.startswith(f"suffolk: damaged: {store_path}/{name} is ")


def test_building_into_a_folder_of_other_things_is_refused(capsys, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    np.save(tmp_path / "x.npy", np.arange(9))
    assert main(["build", "--vocab-size", "9", "--output", str(tmp_path / "mine"), str(tmp_path / "x.npy")]) == 2
    assert "holds 'thesis.txt' and is no datastore" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("depth", ["0", "-1", "99999999999999"])
def test_order_depth_is_checked_before_any_work(capsys, tmp_path, depth):
    arguments = ["build", "--vocab-size", "9", "--order-depth", depth, "--output", str(tmp_path / "s"), "x.npy"]
    assert main(arguments) == 2
    assert "order depth" in capsys.readouterr().err


def test_the_text_to_look_up_may_stand_behind_options(capsys, store_path):
    assert main(["lookup", store_path, "--top", "3", "--json", "the cat"]) == 0
    assert json.loads(capsys.readouterr().out)["match_length"] == 2
    with pytest.raises(SystemExit):
        main(["lookup", store_path, "--json", "the cat", "sat"])
    assert "unrecognized arguments: the cat sat" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "said"), [(None, "is missing"), ("{}", "is damaged"), ("other", "is not the one")])
def test_verify_finds_a_tokenizer_that_is_gone_or_another(capsys, tmp_path, store_path, content, said):
    (path,) = Path(store_path).glob("tokenizer-*.json")
    if content is None:
        path.unlink()
    elif content == "{}":
        path.write_text(content)
    else:
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    assert main(["verify", store_path]) == 1
    damage = capsys.readouterr().err
    assert said in damage
    assert main(["lookup", store_path, "the cat"]) == 2
    assert capsys.readouterr().err == damage.replace("damaged: ", "", 1)


def test_ids_are_looked_up_where_the_tokenizer_is_gone(capsys, store_path):
    (path,) = Path(store_path).glob("tokenizer-*.json")
    path.unlink()
    assert main(["lookup", store_path, "--ids", "0", "1"]) == 0
    assert "match length  2 of 2 tokens: '0 1'" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["info", ""],
        ["verify", ""],
        ["compact", ""],
        ["delete", "", "--id", "x"],
        ["delete", "S", "--id", ""],
        ["lookup", "", "hi"],
        ["serve", ""],
        ["build", "--output", "", "corpus"],
        ["build", "--output", "S", "--tokenizer", "", "corpus"],
        ["client", "", "info"],
        ["generate", "--worker", ""],
        ["generate", "--model", "M", "--class", ""],
        ["generate", "--model", "M", "--stats-json", ""],
    ],
)
def test_an_empty_name_is_refused(capsys, words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert "it is empty" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--max-match", "--min-match", "--max-depth", "--top", "--occurrences"])
@pytest.mark.parametrize("value", ["5000000000", "100000000000000000000"])
def test_lookup_refuses_numbers_beyond_all_limits(capsys, store_path, option, value):
    assert main(["lookup", store_path, "cat", option, value]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {option} is {value}; it must be")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["compact"],
        ["delete", "--id", "x"],
        ["build", "corpus.txt", "--append", "--output"],
        ["build", "corpus.txt", "--tokenizer", "/no/such/place", "--output"],
    ],
)
def test_a_refused_command_leaves_an_empty_folder_empty(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    assert main([*words, "empty"]) == 2
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["corpus.txt", "--metadata", ","], "--metadata ',' names nothing"),
        (["corpus.txt", "--extensions", ""], "--extensions '' names nothing"),
        (
            ["corpus.txt", "--output", "corpus.txt", "--vocab-size", "9"],
            "corpus.txt is a file; name a new or empty folder",
        ),
        (["rubbish.npy", "--vocab-size", "9"], "rubbish.npy: not a whole .npy file of numbers; write it again"),
        (["empty.jsonl", "--vocab-size", "9"], "holds no tokens (1 file of 0 bytes read, without any text)"),
    ],
)
def test_a_build_of_what_cannot_be_is_one_line_and_2(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("text")
    (tmp_path / "rubbish.npy").write_bytes(b"rubbish, and more of it")
    (tmp_path / "empty.jsonl").touch()
    assert main(["build", "--output", "store", *words]) == 2
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("suffolk: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "pickle" not in err


def test_a_url_without_a_port_is_told_which_is_meant(capsys):
    assert main(["client", "grpc://127.0.0.9/x", "info"]) == 2
    assert "grpc://127.0.0.9/x (it names no port; 7700 is meant): nothing listens there" in capsys.readouterr().err
