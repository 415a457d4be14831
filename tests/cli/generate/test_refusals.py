"""``suffolk generate`` prints one line for every bad input."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path

import pytest
import torch

from suffolk.cli.main import main
from suffolk.serving.decoding.engine.model import target_loader
from tests.support.generate_command import PROMPT, generate, refused, store_of
from tests.support.stores import make_store


def test_a_calibration_that_is_none_is_refused_and_left_alone(model: str, tmp_path: Path) -> None:
    kept = tmp_path / "calibration.json"
    kept.write_text("# a file of mine\n")
    assert generate("--model", model, "--set", f"calibration={kept}", PROMPT) == 2
    assert main(["calibration", str(kept)]) == 2
    assert kept.read_text() == "# a file of mine\n"


def test_a_terminal_is_asked_for_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin = io.StringIO("hello")
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["generate", "--model", str(tmp_path / "none")]) == 2
    assert "stdin" not in capsys.readouterr().err
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    assert main(["generate", "--model", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("suffolk: reading the prompt from stdin; Ctrl-D ends it\n")


def test_bad_input_is_one_line_and_exit_code_2(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = store_of(tmp_path / "foreign", "ab" * 32)
    shallow = store_of(tmp_path / "shallow", None, order_depth=20)
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        (["--model", str(tmp_path / "none"), "x"], "does not exist; name a folder"),
        (["--model", str(empty), "x"], "it has no config.json"),
        (["--model", model, "--datastore", foreign, "x"], "was built with tokenizer abababababab, model"),
        (
            ["--model", model, "--datastore", shallow, "x"],
            "max_match 16 + max_depth 10 is above the datastore's order depth 20",
        ),
        (["--model", model, "--datastore", str(tmp_path / "nothing"), "x"], "nothing"),
        (["--model", model, "--drafter", "datastore", "x"], "needs a datastore"),
        (["--model", model, "--datastore", "grpc://127.0.0.1:1/x", "x"], "127.0.0.1:1"),
        (
            ["--model", model, "--datastore", "http://127.0.0.1:1/x", "x"],
            "not the URL of a draft service or worker; the forms are grpc://",
        ),
        (["--model", model, "--set", "max_match=0", "x"], "max_match is 0"),
        (
            ["--model", model, "--set", "max_depth=" + "9" * 20, "x"],
            "max_depth is 99999999999999999999; it must be between 1 and 4096",
        ),
        (["--model", model, "--set", "max_nodes=0", "x"], "max_nodes is 0; it must be between 1 and 1024"),
        (["--model", model, "--temperature", "-1", "x"], "--temperature is -1.0"),
        (["--model", model, "--set", "min_p=2", "x"], "min_p is 2.0; it must be between 0"),
        (
            ["--model", model, "--set", "repetition_penalty=0", "x"],
            "repetition_penalty is 0.0; it must be between 0.01",
        ),
        (
            ["--model", model, "--set", "presence_penalty=3", "x"],
            "presence_penalty is 3.0; it must be between -2 and 2",
        ),
        (["--model", model, "--set", "frequency_penalty=-3", "x"], "frequency_penalty is -3.0"),
        (["--model", model, "--set", "bad_words= ", "x"], "bad_words is empty; name a text"),
        (["--model", model, "--set", "logprobs=21", "x"], "logprobs is 21; it must be between 0 and 20"),
        (
            ["--model", model, "--set", "logprobs=2", "x"],
            "logprobs 2 is written only to the JSON report; add --stats-json",
        ),
        (
            ["--model", model, "--set", "verification=typical", "--set", "epsilon=0", "x"],
            "epsilon is 0.0; it must be above 0",
        ),
        (
            ["--model", model, "--set", "epsilon=0.1", "x"],
            "epsilon 0.1 has no effect under verification match; leave it",
        ),
        (["--model", model, "--device", "abacus", "x"], "device 'abacus' is unknown; use auto"),
        (["--model", model, "--set", "threads=0", "x"], "threads is 0"),
        (
            ["--model", model, "--set", "threads=" + "9" * 14, "x"],
            "threads is 99999999999999; it must be between 1 and 1024",
        ),
        (["--model", model, "ab\udcff"], "the prompt has a surrogate, '\\xff', at 2"),
        (
            ["--model", model, "--drafter", "none", "--set", "costs=/nowhere", "x"],
            "costs /nowhere: --drafter none does not use them",
        ),
        (["--model", model, "--set", "chat=true", "x"], "has no chat template"),
        (["--model", model, "--datastore", store, "--set", "deadline_ms=0", "x"], "deadline_ms is 0.0"),
        (["--model", model, ""], "the prompt is empty"),
    ]
    for words, message in cases:
        assert message in refused(capsys, *words)


def test_a_model_without_its_tokenizer_is_refused_before_its_weights_are_read(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(Path(model) / name)
    monkeypatch.setattr(target_loader, "AutoModelForCausalLM", None)  # so reading the weights is another error
    error = refused(capsys, "--model", str(tmp_path), "x")
    assert "transformers cannot load its tokenizer" in error
    assert "add tokenizer.json" in error


def test_settings_of_a_local_model_in_a_file_are_refused_with_a_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "suffolk.toml"
    words = "--config", str(file), "--worker", "grpc://127.0.0.1:1", "x"
    for content, label in [
        ('dtype = "float32"', f"{file}: dtype"),
        ("[generate]\nmax_match = 3", f"{file}: max_match in [generate]"),
        ('datastore = ["code"]', f"{file}: datastore"),
    ]:
        file.write_text(content)
        assert f"{label} cannot be given with --worker, which has its own model and" in refused(capsys, *words)
    assert main(["config", "show", "generate"]) == 0
    file.write_text(capsys.readouterr().out)  # all defaults
    assert "nothing listens there; start the worker" in refused(capsys, *words)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "hpu", "meta"])
def test_a_device_that_is_not_there_is_not_recommended(
    device: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("it is there")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    error = refused(capsys, "--model", model, "--device", device, "x")
    assert f"device '{device}' " in error
    assert error.endswith("; use auto or cpu\n")
    assert len(error) < 200


def test_a_prompt_beyond_the_context_is_refused_before_costs_are_measured(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("suffolk.serving.decoding.engine.costs.cost_store.find_costs", measured)
    assert "the prompt has 5000 tokens" in refused(capsys, "--model", model, "x" * 5000)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in Path(model).iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**18, 2**18], "data_offsets": [0, 2**38]}}).encode()
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2**38)  # takes no space
    assert "needs 512.00 GiB for its weights" in refused(capsys, "--model", str(tmp_path), "x")


def test_a_datastore_without_a_tokenizer_is_held_against_the_models_ids(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    fits = store_of(tmp_path / "fits", None)
    assert generate("--model", model, "--datastore", fits, PROMPT) == 0
    assert caplog.text.count(f"datastore {fits} has no tokenizer") == 1
    make_store(tmp_path / "larger", [[[1, 2, 3]]], vocab_size=999).close()
    assert generate("--model", model, "--datastore", str(tmp_path / "larger"), PROMPT) == 2
    assert re.search(r"larger was built for 999 token ids, model \S+ has \d+;", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stats-json", "."], "--stats-json . is a folder; name a file"),
        (["--model", __file__], "is a file, not a model folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_few_words(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert generate("--model", model, "--drafter", "none", *words, PROMPT) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert message in err
    assert len(err) < 300
