"""Tests the command line: help, versions, streams, errors on one line, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import suffolk
from suffolk.cli.commands import COMMANDS
from suffolk.cli.main import main
from suffolk.datastore.version import __version__
from tests.support.fork_server import ForkServer
from tests.support.stores import make_word_store


@pytest.fixture
def store_path(tmp_path):
    return make_word_store(tmp_path / "store")


@pytest.fixture(scope="module")
def without_torch():
    with ForkServer("tests.support.without_torch") as server:
        yield server


def test_no_arguments_print_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_version_is_the_one_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"suffolk {__version__}" == f"suffolk {suffolk.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    assert main([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"suffolk {command}" in out
    assert "example" in out


def test_an_unknown_command_is_refused(capsys):
    assert main(["frobnicate"]) == 2
    assert "frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--model", "M", "--dtype", "int8"], "--dtype is 'int8'; it must be one of auto, float32"),
        (
            ["generate", "--model", "M", "--temperature", "abc"],
            "--temperature is 'abc'; it must be a number between 0 (greedy) and 100",
        ),
        (["generate", "--model", "M", "--worker", "W"], "--model and --worker are both given; leave one of them out"),
        (["bench", "decode", "--limit", "x"], "--limit is 'x'; it must be a whole number"),
        (["build"], "CORPUS is missing; see 'suffolk build --help'"),
        (["frobnicate"], "unknown command frobnicate; see 'suffolk --help'"),
        (["generat"], "unknown command generat (did you mean generate?); see 'suffolk --help'"),
        (["demo", "--folder", __file__], f"--folder is {__file__!r}, which is no folder"),
        (["run"], "unknown command run; see 'suffolk --help'"),
        (["--hlep"], "unknown option --hlep (did you mean --help?); see 'suffolk --help'"),
        (["hierarchy", "x"], "unknown command hierarchy x; use hierarchy plan"),
        (["lookup", "/nowhere", "-x"], "unknown option -x; write -- before a text that begins with '-'; see 'suffolk"),
        (["config", "shw"], "unknown command config shw (did you mean show?)"),
        (
            ["generate", "--max-tokens", "5"],
            "unknown option --max-tokens (did you mean --max-new-tokens?); see 'suffolk generate --help'",
        ),
        (
            ["worker", "--exit-layers", "5"],
            "--exit-layers is no option; give it as --set exit_layers=VALUE, or in the file of --config",
        ),
        (
            ["bench", "decode", "--promts", "x"],
            "unknown option --promts (did you mean --prompts?); see 'suffolk bench decode --help'",
        ),
        (["generate", "--model"], "argument --model: expected one argument; see 'suffolk generate --help'"),
        (["info", "a", "b"], "unexpected argument 'b'; quote a text of several words; see 'suffolk info --help'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(capsys, words, message):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["info"], ["verify"], ["lookup", "--ids", "1"]])
def test_a_missing_datastore_is_one_line_and_2(capsys, tmp_path, command):
    assert main([command[0], str(tmp_path / "nothing"), *command[1:]]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "nothing is no datastore" in err
    assert "suffolk build" in err


def test_printing_a_version_loads_no_torch():
    code = (
        "import sys\nfrom suffolk.cli.main import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    )
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
    ("redirection", "message"),
    [
        ("<&-", "PROMPT is missing, and stdin is closed; give a PROMPT, or send it to stdin"),
        ("</dev/null", "PROMPT is missing, and stdin is empty; give a PROMPT, or send it to stdin"),
        (">&-", "stdout is closed; send it to a file or to /dev/null"),
        ("< {bad}", "the prompt cannot be read: 'utf-8' codec can't decode byte 0xff in position 2"),
    ],
)
def test_streams_that_cannot_be_used_are_one_line_and_2(tmp_path, redirection, message):
    (tmp_path / "bad").write_bytes(b"ab\xff")
    command = f"{sys.executable} -m suffolk generate --model M {redirection.format(bad=tmp_path / 'bad')}"
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_errors_do_not_go_to_stdout_if_stderr_is_closed(tmp_path):
    command = f"{sys.executable} -m suffolk info {tmp_path} 2>&-"
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--set", "threads=0", "x"], "threads is 0"),
        (["generate", "--set", "exit_layers=0", "x"], "exit_layers is 0; it must be 1 or more"),
        (["generate", "--model", "m", "--drafter", "eagle", "x"], "--drafter eagle needs --head FOLDER; add it"),
        (["generate", "--levels", "draft-model:4", "x"], "level draft-model needs a model (on the command line"),
        (["worker", "--set", "threads=0"], "threads is 0"),
        (["profile", "--threads", "0"], "--threads is 0"),
        (["profile", "--slots", "0"], "--slots is 0; it must be between 1 and 256"),
        (["profile", "--contexts", "0"], "--contexts: 0 cannot be measured"),
        (["hierarchy", "plan", "--measure", "--prompts", "x", "--rounds", "0"], "--rounds is 0; it must be 1 or more"),
        (
            ["hierarchy", "plan", "--measure", "--prompts", "x", "--max-new-tokens", "1"],
            "--max-new-tokens is 1; it must be 2 or more",
        ),
        (["hierarchy", "plan", "--measure", "--prompts", "x", "--exit", "0"], "level 'exit-0' is unknown"),
        (
            ["hierarchy", "plan", "--measure", "--prompts", "x", "--stack", "datastore:3"],
            "level datastore of --stack has no source of drafts",
        ),
        (
            ["hierarchy", "plan", "--measure", "--prompts", "x", "--stack", "exit-2:3", "--exit", "3"],
            "--exit 3 adds level exit-3, which no --stack uses",
        ),
        (
            ["hierarchy", "plan", "--measure", "--prompts", "x", "--head", "/nowhere/head"],
            "/nowhere/head/config.json: cannot be read",
        ),
        (["profile", "--output", "."], "--output . is a folder; name a file"),
        (
            ["train", "eagle", "--corpus", "x", "--output", "y", "--set", "head_option.zz=1"],
            "head eagle: unknown key 'zz'",
        ),
        (["worker", "--slots", "0"], "--slots is 0"),
        (["worker", "--draft-model", "/nowhere/small"], "model folder /nowhere/small does not exist"),
        (["generate", "--head", "/nowhere/head", "x"], "/nowhere/head/config.json: cannot be read"),
        (["generate", "x"], "model folder /nowhere does not exist"),
        (["worker", "--listen", "127.0.0.1:0"], "model folder /nowhere does not exist"),
        (["profile"], "model folder /nowhere does not exist"),
        (["train", "eagle", "--corpus", "x", "--output", "y"], "model folder /nowhere does not exist"),
        (["hierarchy", "plan", "--measure", "--prompts", "x"], "model folder /nowhere does not exist"),
        (["bench", "decode", "--prompts", "x", "--limit", "-1"], "--limit is -1"),
        (["bench", "prediction", "--limit", "0"], "--limit is 0"),
        (["bench", "rollouts", "--prompts", "x", "--samples", "0"], "--samples is 0"),
    ],
)
def test_options_that_fit_no_model_are_refused_before_torch_is_loaded(without_torch, words, message):
    ending = without_torch.run([*words, "--model", "/nowhere"], function="tests.support.without_torch:main")
    assert (ending.code, ending.output) == (2, "")
    assert ending.errors.startswith(f"suffolk: {message}")
    assert ending.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *((["bench", name, "--prompts"], "no prompts in {file}") for name in ("decode", "batch", "worker", "rollouts")),
        (["bench", "prediction", "--files"], "no .py file has 30 lines; name other --files or lower --lines"),
        (["bench", "agents", "--files"], "no .py file has 25 lines; name other --files or lower --lines"),
        (["bench", "agents", "--tasks"], "no tasks in {file}"),
        (["hierarchy", "plan", "--measure", "--prompts"], "no prompts in {file}"),
        (["train", "eagle", "--output", "head", "--corpus"], "corpus {file}: nothing to read (1 empty)"),
    ],
)
def test_files_are_read_before_torch_is_loaded(without_torch, tmp_path, words, message):
    """The name of the model may be one of the hub, and would be fetched."""
    file = tmp_path / "empty.jsonl"
    file.touch()
    words = [*words, str(file), "--model", "no/model"]
    ending = without_torch.run(words, function="tests.support.without_torch:main")
    assert (ending.code, ending.output) == (2, "")
    assert ending.errors.startswith(f"suffolk: {message.format(file=file)}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/nowhere/day.jsonl"], "recording /nowhere/day.jsonl"),
        (["x", "--set", "threads=2"], "--dtype, --device and --threads need --model; leave them out, or add --model"),
        (["x", "--nodes", "4", "8", "--calibration", "c"], "--calibration c belongs to one drafter"),
        (
            ["x", "--drafter", "prompt-lookup", "--model", "m", "--set", "exit_layers=2"],
            "no --drafter uses early-exit; leave its option out, or add --drafter early-exit",
        ),
    ],
)
def test_replay_refuses_before_torch_is_loaded(without_torch, words, message):
    """Regression: a mistyped path used to fail after six seconds, and unused options were accepted silently."""
    ending = without_torch.run(["replay", *words], function="tests.support.without_torch:main")
    assert (ending.code, ending.output) == (2, "")
    assert ending.errors.startswith(f"suffolk: {message}")
    assert ending.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--set", "costs=/nowhere/costs", "x"], "costs /nowhere/costs: cannot be read"),
        (["worker", "--capacity", "65"], "--capacity is 65: beside the 64 nodes of a draft tree no text fits"),
        (
            ["worker", "--listen", "127.0.0.1:0", "--set", "costs=/nowhere/costs"],
            "costs /nowhere/costs: cannot be read",
        ),
        (
            ["hierarchy", "plan", "--measure", "--prompts", "x", "--draft-model", "/nowhere/small"],
            "model folder /nowhere/small does",
        ),
        (
            ["train", "eagle", "--corpus", "/nowhere/text", "--output", "/nowhere/new"],
            "corpus /nowhere/text: no such file or folder",
        ),
    ],
)
def test_files_that_are_not_there_are_refused_before_the_model_is_loaded(capsys, tmp_path, words, message):
    (tmp_path / "config.json").touch()  # looks like a model, but cannot be loaded
    assert main([*words, "--model", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["info", ""],
        ["verify", ""],
        ["compact", ""],
        ["delete", "", "--id", "x"],
        ["delete", "S", "--id", ""],
        ["lookup", "", "hi"],
        ["lookup", "S", ""],
        ["serve", ""],
        ["serve", "S", "--tls-cert", "", "--tls-key", ""],
        ["serve", "S", "--tls-cert", "C", "--tls-key", "K", "--tls-client-ca", ""],
        ["worker", "--model", "M", "--tls-cert", "C", "--tls-key", ""],
        ["build", "--output", "", "corpus"],
        ["build", "--output", "S", "--tokenizer", "", "corpus"],
        ["generate", "--worker", ""],
        ["generate", "--model", "M", "--set", "record="],
        ["generate", "--model", "M", "--stats-json", ""],
    ],
)
def test_an_empty_name_is_refused(capsys, words):
    """Regression: an unset shell variable used to turn off client certificates silently."""
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "it is empty" in err
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


@pytest.mark.parametrize("store", ["S", "grpc://127.0.0.1:1/chat"])
def test_a_deletion_names_documents(capsys, store):
    """Regression: the error named the form of a condition, and no option."""
    assert main(["delete", store]) == 2
    hint = "suffolk: no document is named; give --id ID or --where CONDITION, or --group GROUP of a live datastore\n"
    assert capsys.readouterr().err == hint


def test_an_address_of_http_is_no_socket(capsys):
    """Regression: the error named unix:PATH, which HTTP does not take."""
    assert main(["serve", "S", "--http", "bar"]) == 2
    assert "--http: 'bar' is not HOST:PORT with a port in 0..65535, nor 'off'\n" in capsys.readouterr().err


def test_a_url_without_a_port_shows_the_default_port(capsys):
    assert main(["info", "grpc://127.0.0.9/x"]) == 2
    assert "grpc://127.0.0.9/x (default port 7700): nothing listens there" in capsys.readouterr().err
