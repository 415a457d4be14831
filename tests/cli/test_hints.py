"""Refused command lines say what there is instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.main import exit_code_of, main
from suffolk.datastore.version import __version__
from tests.support.building import write_tokenizer


def run(capsys: pytest.CaptureFixture[str], words: str, code: int = 2) -> str:
    """What the command prints, in one line if it is an error."""
    assert main(words.split()) == code
    said = capsys.readouterr()
    assert said.err.count("\n") == (code != 0)
    return said.out + said.err


def test_help_and_version_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "version", 0) == f"suffolk {__version__}\n"
    for words in ("help", "help bench", "help info", "help token add"):
        assert run(capsys, words, 0) == run(capsys, f"{words.removeprefix('help')} --help", 0)
    assert "unknown command infos (did you mean info?)" in run(capsys, "help infos")


def test_a_group_without_a_command_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "token") == (
        "suffolk: token needs one of its commands: token add, token list, token remove; see 'suffolk token --help'\n"
    )


def test_a_value_of_a_switch_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json takes no value, such as '1'; leave it out; see 'suffolk info --help'" in run(
        capsys, "info s --json=1"
    )


def test_a_dry_run_of_a_promotion_takes_topology_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/nope: neither a URL nor a topology file; give grpc://HOST:PORT/NAME, or a file whose name" in run(
        capsys, "promote --dry-run /nope"
    )


def test_tasks_that_are_missing_are_no_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tasks /nowhere: No such file or directory" in run(capsys, "bench agents --model m --tasks /nowhere")


def test_bounding_drafters_are_among_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    said = run(capsys, f"bench decode --model m --prompts {tmp_path / 'p.jsonl'} --drafters foo")
    assert "is 'foo'; it must be one of none, datastore" in said
    assert said.endswith("useless, recorded\n")
    assert "recorded" not in run(capsys, f"bench batch --model m --prompts {tmp_path / 'p.jsonl'} --drafters foo")


def test_without_a_cluster_the_advice_is_not_that_of_ray(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("Could not find any running Ray instance. Please specify the `--address` flag")

    monkeypatch.setattr(pytest.importorskip("ray"), "init", refuse)
    said = run(capsys, "cluster status")
    assert "no cluster runs here; run 'ray start --head' on one machine" in said
    assert "flag" not in said


def test_an_enormous_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "bench retrieval s --queries 9999999999999999999999999")
    assert "--queries is 9999999999999999999999999; it must be 1 or more, up to 2147483647" in said


def test_too_little_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise MemoryError("Unable to allocate 1. TiB")

    assert exit_code_of(work, "suffolk") == 2
    said = "suffolk: not enough memory (Unable to allocate 1. TiB); give smaller numbers, or free some memory\n"
    assert capsys.readouterr().err == said


def test_control_characters_of_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a name with a line end made two lines of the summary, and others could change the terminal's state."""
    (tmp_path / "a.txt").write_text("two words")
    (tmp_path / "b\n\x1b[31m.dat").write_bytes(bytes(100))
    words = ["build", "--tokenizer", write_tokenizer(tmp_path), "--output", str(tmp_path / "store")]
    assert main([*words, "--extensions", ".txt,.dat", str(tmp_path)]) == 0
    assert f"1 binary: {tmp_path}/b\\n\\x1b[31m.dat;" in capsys.readouterr().out
    assert main([*words, "--replace", str(tmp_path / "b\n\x1b[31m.dat")]) == 2
    assert "b \\x1b[31m.dat: binary" in capsys.readouterr().err
