"""Tests ``suffolk profile`` on a tiny model, and the files that it writes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, PermissionDenied, SuffolkError, Unsupported
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import (
    CostKey,
    costs_path,
    find_costs,
    load_costs,
    save_costs,
    stored_costs,
)
from suffolk.serving.decoding.engine.model import int8_linear, skinny_gemm
from suffolk.serving.decoding.engine.model.int8_linear import compress
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import save_tiny, tiny_model

KEY = CostKey("abc", "float32", 1000, "a processor", 2, "2.9", 1)
COSTS = CostModel([1, 2, 8], [1.0, 1.5, 2.5], 0.1, 0.01, 0.001)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "suffolk" / "costs"


def tune(model: str, *words: str) -> int:
    return main(["profile", "--model", model, "--slots", "2", "--contexts", "8", "--rounds", "1", *words])


def test_what_is_tuned_is_taken_up(model: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(model) == 0
    printed = capsys.readouterr().out
    assert "milliseconds of a pass" in printed
    assert "break-even" in printed
    (file,) = cache.iterdir()
    assert f"wrote {file}" in printed
    report = tmp_path / "report.json"
    words = ["generate", "--model", model, "--max-new-tokens", "4", "--stats-json", str(report), "abcabc"]
    assert main(words) == 0
    costs = json.loads(report.read_text())["costs"]
    assert costs["source"] == str(file)
    assert costs["slowdown"] > 0
    named = tmp_path / "named.json"
    file.rename(named)
    assert main([*words, "--set", f"costs={named}"]) == 0
    assert json.loads(report.read_text())["costs"]["source"] == str(named)


def test_a_draft_model_is_tuned_as_it_drafts(
    model: str, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(skinny_gemm, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(int8_linear, "faster_rows", lambda layer: 8)
    assert tune(model, "--as-draft-model", "--dtype", "float32") == 0
    (file,) = cache.iterdir()
    target = Target.load(model, "float32")
    with caplog.at_level("INFO"):
        assert find_costs(target, 1).source == "measured"
    assert "'suffolk profile --model' measures once" in caplog.text
    compress(target.model)
    assert find_costs(target, 1).source == str(file)


def test_the_result_as_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    assert tune(model, "--json", "--output", str(file), "--dtype", "float32", "--exact", "bits") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["file"] == str(file)
    assert result["same_bits"]
    assert any("attention 8 | 8" in uses for uses in result["kernels"].values())
    assert {each["requests"] for each in result["passes"]} == {1, 2}
    assert set(result["break_even"][0]["accepted"]) == {"4", "8", "16", "32", "64"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--contexts", "1,x"], "--contexts is '1,x'"),
        (["--contexts", "5000"], "--contexts: 5000 cannot be measured: the model takes 4096 tokens, 64 of them for"),
        (["--contexts", "-1"], "--contexts: -1 cannot be measured; each must be 1 or more\n"),
        (["--slots", "0"], "slots is 0"),
        (["--rounds", "0"], "--rounds is 0"),
        (["--threads", "0"], "--threads is 0; it must be between 1 and 1024"),
        (["--output", "/nowhere/costs.json"], "there is no such folder"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(model, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_contexts_that_are_measured_by_default_fit_a_small_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = save_tiny(tmp_path / "small", max_position_embeddings=512)
    words = ["--slots", "1", "--rounds", "1", "--json"]
    assert main(["profile", "--model", str(small), *words]) == 0
    assert {each["context"] for each in json.loads(capsys.readouterr().out)["passes"]} == {128, 448}


def test_an_interrupt_leaves_nothing(
    model: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*words: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    assert tune(model) == 130
    assert list(cache.iterdir()) == []


def test_costs_survive_a_file(tmp_path: Path) -> None:
    save_costs(COSTS, KEY, tmp_path / "deep" / "costs.json")
    found = load_costs(tmp_path / "deep" / "costs.json", KEY)
    assert found.time(5, 2, 100.0) == COSTS.time(5, 2, 100.0)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["costs.json"]


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermissionDenied, match="name another file"):
        save_costs(COSTS, KEY, tmp_path / "file" / "costs.json")


def changed(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return path


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"format": 2}, Unsupported, "format is 2, not 1"),
        ({"surprise": 1}, Corruption, "unknown or missing .surprise"),
        ({"seconds": [1.0]}, Corruption, "damaged"),
        ({"seconds": [1.0, "x", 2.0]}, Corruption, "damaged"),
        ({"seconds": [1.0, float("nan"), 2.0]}, Corruption, "damaged"),
        ({"sizes": None}, Corruption, "damaged"),
        ({"per_key": -1}, Corruption, "damaged"),
        ({"per_key": None}, Corruption, "damaged"),
        ({"target": 7}, Corruption, "target does not have the fields .*; run 'suffolk profile' again"),
    ],
)
def test_damaged_files_are_refused_when_named_and_ignored_in_the_cache(
    fields: dict[str, Any], error: type[SuffolkError], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = costs_path(KEY)
    save_costs(COSTS, KEY, path)
    assert stored_costs(KEY) is not None
    changed(path, **fields)
    with pytest.raises(error, match=message):
        load_costs(path, KEY)
    with caplog.at_level(logging.WARNING):
        assert stored_costs(KEY) is None
    assert "continuing without it" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": "' + b"x" * (1 << 20)])
def test_what_is_no_cost_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(content)
    with pytest.raises(SuffolkError, match=r"costs\.json: (no|format|holds a list|cannot be read \(it is larger than)"):
        load_costs(path, KEY)


def test_costs_of_another_target_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    save_costs(COSTS, KEY, path)
    with pytest.raises(InvalidArgument, match="made for threads 2, and this is 3"):
        load_costs(path, replace(KEY, threads=3))
    with pytest.raises(NotFound, match="'suffolk profile' makes them"):
        load_costs(tmp_path / "none.json", KEY)


def test_the_key_tells_models_apart() -> None:
    keys = {
        CostKey.of(Target.wrap(tiny_model(seed=seed, num_hidden_layers=layers)))
        for seed, layers in ((0, 1), (1, 1), (0, 2))
    }
    assert len(keys) == 2
