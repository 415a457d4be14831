"""Tests the file of --config and ``suffolk config show``: precedence, rejected values, and listed options."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.cli.options.config_file import COMMANDS, UNSET, command_settings, read_config
from suffolk.datastore.settings import REQUIRED, Within, parse_toml

FILE = """
temperature = 0.5
slots = 2
[generate]
temperature = 0.6
top_k = 40
stop = ["END"]
[worker]
capacity = 512
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "suffolk.toml").write_text(FILE)
    return tmp_path / "suffolk.toml"


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[str]:
    assert main(["config", "show", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_command_line_wins_over_a_table_over_the_top_over_defaults(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, "generate", "--config", file, "--max-new-tokens", "7", "--set", "min_p=0.1")
    assert f"temperature = 0.6  # {file} [generate]" in lines
    assert f"top_k = 40  # {file} [generate]" in lines
    assert f'stop = ["END"]  # {file} [generate]' in lines
    assert "max_new_tokens = 7  # command line" in lines
    assert "min_p = 0.1  # command line" in lines
    assert "top_p = 1.0  # default" in lines
    assert "# model =  # not set" in lines
    assert "temperature = 0.9  # command line" in shown(capsys, "generate", "--config", file, "--temperature", "0.9")
    lines = shown(capsys, "worker", "--config", file)
    assert f"slots = 2  # {file}" in lines
    assert f"capacity = 512  # {file} [worker]" in lines
    assert "# model =  # required" in lines


def test_comments_are_wrapped_and_name_each_choice_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys)
    assert max(map(len, lines)) <= 100
    generate = lines[: lines.index("[worker]")]
    assert not any("one of none, datastore" in line for line in generate)
    assert any("(one of auto, float32" in line for line in lines)


def test_without_a_command_all_four_are_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--config", file)
    assert [line for line in lines if line.startswith("[")] == [f"[{name}]" for name in COMMANDS]
    assert f"top_k = 40  # {file} [generate]" in lines
    assert shown(capsys, "--config", file, "worker") == shown(capsys, "worker", "--config", file)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_shown_is_a_file_that_sets_the_same(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text("\n".join(shown(capsys, command)))
    settings = command_settings(command)
    read = read_config(copy, command)
    assert {name: given.value for name, given in read.items()} == {
        name: each.default
        for name, each in settings.items()
        if name not in UNSET and each.default is not None and each.default is not REQUIRED
    }


def test_what_is_shown_can_be_given_to_config_and_its_false_flags_exclude_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text("\n".join(shown(capsys)))
    for command in COMMANDS:
        shown(capsys, command, "--config", copy)
    copy.write_text("chat = false\nraw = true\n")
    assert f"raw = true  # {copy}" in shown(capsys, "generate", "--config", copy)
    copy.write_text("chat = true\nraw = true\n")
    assert main(["config", "show", "generate", "--config", str(copy)]) == 2
    assert "are both given; leave one of them out" in capsys.readouterr().err


def every_setting() -> list[tuple[str, str]]:
    return [(command, name) for command in COMMANDS for name in command_settings(command) if name not in UNSET]


@pytest.mark.parametrize(("command", "name"), every_setting())
def test_every_setting_is_listed_with_help_and_can_be_set_in_a_file(command: str, name: str, tmp_path: Path) -> None:
    setting = command_settings(command)[name]
    within = setting.within or Within(1, 1)
    value = {
        int: int(within.least),
        float: float(within.most),
        str: '"text"',
        Path: '"a/b"',
        bool: "true",
        dict: "{x = 1}",
    }
    text = f'"{setting.choices[0]}"' if setting.choices else value[setting.kind]
    (tmp_path / "x.toml").write_text(f"[{command}]\n{name} = {text}\n")
    found = read_config(tmp_path / "x.toml", command)[name].value
    assert isinstance(found[0] if setting.many else found, setting.kind)
    assert setting.help


def test_a_key_that_several_commands_share_has_one_type() -> None:
    kinds: dict[str, set[tuple[type, bool]]] = {}
    for command in COMMANDS:
        for name, each in command_settings(command).items():
            kinds.setdefault(name, set()).add((each.kind, each.many))
    assert {name for name, found in kinds.items() if len(found) > 1} == {"drafter"}  # one value, or several choices


@pytest.mark.parametrize(("command", "most"), [("generate", 22), ("worker", 26), ("train", 22), ("serve", 22)])
def test_commands_have_few_options_in_groups(command: str, most: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  -") for line in lines) <= most
    if command == "generate":
        groups = [line for line in lines if line in ("model:", "prompt:", "sampling:", "drafting:", "output:")]
        assert groups == ["model:", "prompt:", "sampling:", "drafting:", "output:"]
        (place,) = [place for place, line in enumerate(lines) if line.startswith("  --datastore")]
        assert lines.index("drafting:") < place < lines.index("output:")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("temprature = 1", "unknown key 'temprature' (did you mean temperature?); 'suffolk config show' lists all"),
        ("[worker]\nslotz = 1", "unknown key 'slotz' in [worker] (did you mean slots?); 'suffolk config show worker'"),
        ("[wörker", "is not TOML ("),
        ("[generate]\ntemperature = 300", "temperature in [generate] is 300.0; it must be between 0 (greedy) and 100"),
        ("[generate]\ntop_p = 0", "top_p in [generate] is 0.0; it must be above 0 and at most 1 (no limit)"),
        ("[generate]\ntop_p = nan", "top_p in [generate] is nan; it must be above 0 and at most 1 (no limit)"),
        ("seed = 1.5", "seed is 1.5; it must be a whole number between 0 and 9223372036854775807"),
        ("slots = 'eight'", "slots is 'eight'; it must be a whole number between 1 and 1024"),
        ("slots = true", "slots is True; it must be a whole number between 1 and 1024"),
        ("stop = [1]", "stop is 1; it must be a list, each a text"),
        ("dtype = 'int8'", "dtype is 'int8'; it must be one of auto, float32"),
        ("model = ''", "model: it is empty; give MODEL: model folder in the Hugging Face layout, or hub name"),
        ("worker = 'grpc://127.0.0.1:1'", "worker is 'grpc://127.0.0.1:1'; it must be a table, [worker]"),
        ("[generate]\nmodel = 'a'\nworker = 'b'", "are both given; leave one of them out"),
        ("[train]\nfeature_cache = '5X'", "feature_cache in [train] is '5X'; it must be a size such as 500M"),
        ("config = 'x'", "unknown key 'config'"),
    ],
)
def test_what_a_file_cannot_hold_is_one_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(content)
    assert main(["config", "show", "generate", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--config", "/none.toml"], "--config /none.toml: no such file; name a TOML file"),
        (["generate", "--set", "x"], "--set 'x': write it as NAME=VALUE"),
        (
            ["generate", "--set", "temprature=1"],
            "--set temprature=1: unknown name 'temprature' (did you mean temperature?)",
        ),
        (["generate", "--set", "top_k=-1"], "top_k is -1; it must be between 0"),
        (["generate", "--set", "chat=true", "--raw"], "--raw and chat are both given; leave one of them out"),
        (["lookup"], "lookup reads no file; the commands that do are generate, worker, serve, train"),
        (["wroker"], "wroker reads no file (did you mean worker?)"),
        (["wroker", "--set", "slots=1"], "wroker reads no file (did you mean worker?)"),
        (
            ["--set", "slots=1"],
            "--set belongs to a command; write 'suffolk config show COMMAND --set ...' with one of ",
        ),
        (["--config=x", "--slots=1", "worker"], "--slots belongs to a command; write 'suffolk config show COMMAND"),
        (["worker", "--set", "tool_format="], "tool_format is ''; it must be one of auto, hermes"),
        (["worker", "--set", "log_format="], "log_format is ''; it must be one of text, json"),
        (
            ["worker", "--set", "reasoning="],
            "reasoning: it is empty; give MARKS: marks around the reasoning of the model",
        ),
    ],
)
def test_what_the_command_line_cannot_hold_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", *words]) == 2
    assert capsys.readouterr().err.startswith(f"suffolk: {message}")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_value_of_a_setting_with_choices_names_them(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a name or a path was wanted."""
    for name, setting in command_settings(command).items():
        if setting.choices and not setting.positional:
            assert main(["config", "show", command, "--set", f"{name}="]) == 2
            error = capsys.readouterr().err
            assert error == f"suffolk: {name} is ''; it must be one of {', '.join(setting.choices)}\n"


def test_an_option_takes_the_place_of_what_it_excludes_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text("[generate]\nmodel = 'm'\nraw = true\n")
    lines = shown(
        capsys, "generate", "--config", tmp_path / "x.toml", "--worker", "grpc://127.0.0.1:1", "--set", "chat=true"
    )
    assert "# model =  # not set" in lines
    assert "raw = false  # default" in lines
    assert "chat = true  # command line" in lines


def test_python_3_10_reads_toml_too() -> None:
    assert parse_toml("a = 1") == {"a": 1}
