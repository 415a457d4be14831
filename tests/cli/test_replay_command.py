"""Tests ``suffolk replay`` and ``--record`` on a tiny model. Recordings are replayed, and bad input gives one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.replayer import Replayer
from suffolk.serving.worker.service import DecodeService
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny
from tests.support.worker_server import calling, talking_target, working

PROMPTS = ("abcabcabcabc", "def f(x):\n    return x\n" * 3)
COSTS = CostModel([1, 2, 64], [1.0, 1.01, 1.5])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module", autouse=True)
def costs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        key = CostKey.of(Target.load(str(model)))
        save_costs(COSTS, key, costs_path(key))
        yield costs_path(key)


@pytest.fixture(scope="module")
def recording(model: Path, costs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three recordings, in two groups of lines of one file."""
    path = tmp_path_factory.mktemp("recordings") / "day.jsonl"
    for number, prompt in enumerate((*PROMPTS, PROMPTS[0])):
        words = ["--max-new-tokens", "30", "--seed", str(number), "--temperature", str(0.4 * number)]
        assert main(["generate", "--model", str(model), "--set", f"record={path}", *words, prompt]) == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["group"] = "code"
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def store(recording: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A datastore of the recorded outputs, with some tokens changed."""
    path = tmp_path_factory.mktemp("stores") / "texts"
    texts = [[*each.prompt.tolist(), *each.generated.tolist()] for each in read_recordings([recording])]
    broken = [[3 if at % 13 == 5 else token for at, token in enumerate(text)] for text in texts]
    make_store(path, [broken], vocab_size=257, tokenizer=fingerprint(load_tokenizer(str(model)))).close()
    return path


def replay(*words: object) -> int:
    return main(["replay", *map(str, words)])


def rows(path: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    return {(row["drafter"], row["nodes"], row["group"]): row for row in json.loads(path.read_text())["results"]}


def test_what_is_recorded_is_what_was_generated(recording: Path, model: Path) -> None:
    texts = read_recordings([recording])
    tokenizer = load_tokenizer(str(model))
    assert [tokenizer.decode(each.prompt.tolist()) for each in texts] == [*PROMPTS, PROMPTS[0]]
    assert [each.group for each in texts] == ["text", "code", "text"]
    assert [(each.settings.seed, each.settings.temperature) for each in texts] == [(0, 0.0), (1, 0.4), (2, 0.8)]
    assert {each.model for each in texts} == {"tiny"}
    assert {each.tokenizer for each in texts} == {fingerprint(tokenizer)}
    assert {each.drafter for each in texts} == {"prompt-lookup"}


def test_every_drafter_and_size_is_replayed(
    recording: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    assert replay(recording, "--datastore", store, "--json", path, "--nodes", 2, 16) == 0
    printed = capsys.readouterr()
    assert "replaying 3 texts of tiny" in printed.err
    found = rows(path)
    names = ("datastore", "prompt-lookup", "hybrid")
    assert set(found) == {
        (name, nodes, group) for name in names for nodes in (2, 16) for group in ("text", "code", "all")
    }
    for (name, nodes, group), row in found.items():
        assert row["texts"] == {"text": 2, "code": 1, "all": 3}[group]
        assert row["mean_generated_length"] == pytest.approx(row["tokens"] / row["passes"])
        assert row["nodes_per_pass"] <= nodes
        assert row["acceptance_by_depth"] == sorted(row["acceptance_by_depth"], reverse=True)
        assert sum(row["accepted_by_source"].values()) == pytest.approx(1.0) or row["mean_generated_length"] == 1
        assert "speed_up" not in row
        assert f"{name:13}" in printed.out
    assert found["datastore", 16, "all"]["mean_generated_length"] > 2
    assert found["datastore", 16, "all"]["replayed_tokens_per_second"] > 0
    own = Replayer(PromptLookupDrafter(257), 16)
    passes = [own.replay(each).stats.steps for each in read_recordings([recording])]
    assert found["prompt-lookup", 16, "all"]["passes"] == sum(passes)


def test_with_costs_the_planner_chooses(recording: Path, store: Path, model: Path, costs: Path, tmp_path: Path) -> None:
    words = (recording, "--datastore", store, "--drafter", "datastore", "--draft-ms", 0, "--json")
    assert replay(*words, tmp_path / "a.json", "--costs", costs) == 0
    assert replay(*words, tmp_path / "b.json", "--costs", "stored", "--model", model) == 0
    [a], [b] = (
        [row for row in rows(tmp_path / name).values() if row["group"] == "all"] for name in ("a.json", "b.json")
    )
    assert a["speed_up"] == b["speed_up"] > 1.3
    assert a["mean_generated_length"] > a["speed_up"]  # a pass over a tree costs more than a plain pass


def test_networks_are_replayed_with_the_model(recording: Path, store: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    words = ("--model", model, "--exit-layers", 1, "--draft-model", model, "--datastore", store, "--nodes", 8)
    words = (*words, "--drafter", "hybrid", "--drafter", "draft-model")
    assert replay(recording, *words, "--json", path) == 0
    found = rows(path)
    assert {name for name, _, _ in found} == {"hybrid", "draft-model"}
    level = (
        "--model",
        model,
        "--draft-model",
        model,
        "--levels",
        "prompt-lookup:3 > draft-model:4",
        "--drafter",
        "hierarchy",
    )
    assert replay(recording, *level, "--nodes", 8, "--json", tmp_path / "level.json") == 0
    assert rows(tmp_path / "level.json")["hierarchy", 8, "all"]["mean_generated_length"] > 1.5
    assert found["draft-model", 8, "all"]["mean_generated_length"] > 2  # its own weights, and the noise of each request
    assert "draft-model" in " ".join(found["hybrid", 8, "all"]["accepted_by_source"])


def test_only_what_one_drafter_decoded(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = tmp_path / "mixed.jsonl"
    lines = recording.read_text().splitlines()
    lines[0] = lines[0].replace('"drafter":"prompt-lookup"', '"drafter":"none"')
    mixed.write_text("\n".join(lines) + "\n")
    assert replay(mixed) == 0
    assert "several drafters generated these recordings" in capsys.readouterr().err
    assert replay(mixed, "--recorded-with", "none") == 0
    assert "replaying 1 text of tiny" in capsys.readouterr().err
    assert replay(mixed, "--recorded-with", "eagle") == 2
    assert (
        "--recorded-with eagle: no text was decoded with it; the recordings have none, prompt-lookup"
        in capsys.readouterr().err
    )


def test_bad_input_is_one_line(
    recording: Path, store: Path, model: Path, costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    tokens = [[1, 2, 3] * 9]
    make_store(tmp_path / "other", [tokens], vocab_size=257, tokenizer="ab" * 32).close()
    make_store(tmp_path / "small", [tokens], vocab_size=50).close()
    cases: dict[str, tuple[object, ...]] = {
        "it is empty": (tmp_path / "empty.jsonl",),
        "prompts.jsonl line 1: not a recording": (tmp_path / "prompts.jsonl",),
        "cannot be read": (tmp_path / "none.jsonl",),
        "was built with tokenizer abababababab": (recording, "--datastore", tmp_path / "other"),
        "has token ids 0..49, and a recording of model tiny has": (recording, "--datastore", tmp_path / "small"),
        "--drafter hybrid needs something to draft from; add --datastore": (recording, "--drafter", "hybrid"),
        "--drafter eagle needs something to draft from; add --head": (recording, "--drafter", "eagle"),
        "drafter early-exit reads the model that was recorded; add --model": (recording, "--exit-layers", 1),
        "has no effect without a neural drafter": (recording, "--model", model),
        "--costs stored needs the model": (recording, "--costs", "stored"),
        "cannot be read (No such file": (recording, "--costs", tmp_path / "none.json"),
        "--nodes is 0": (recording, "--nodes", 0),
        "--max-match": (recording, "--datastore", store, "--max-match", 60, "--max-depth", 60),
        "--draft-ms has no effect without --costs": (recording, "--draft-ms", 1),
        "--draft-ms is -1.0": (recording, "--draft-ms", -1, "--costs", costs),
        "there is no such folder": (recording, "--json", tmp_path / "new" / "x.json"),
    }
    for words, arguments in cases.items():
        assert replay(*arguments) == 2, words
        printed = capsys.readouterr()
        assert words in printed.err, printed.err
        assert printed.err.count("\n") == 1
        assert not printed.out
    assert main(["generate", "--model", str(model), "--set", f"record={tmp_path / 'prompts.jsonl'}", "x"]) == 2
    assert "holds something other than recordings" in capsys.readouterr().err


def test_a_log_with_the_datastore_of_another_tokenizer_names_the_tokenizer_to_build_with(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path / "other", [[[1, 2, 3] * 9]], vocab_size=257, tokenizer="ab" * 32).close()
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"request": {"model": "gpt", "prompt": "1 + 1 ="}, "response": {"choices": [{"index": 0, "text": " 2"}]}}\n'
    )
    assert replay(log, "--tokenizer", model, "--datastore", tmp_path / "other") == 2
    assert f"; build one for this model: suffolk build --tokenizer {model} --output" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released: list[int] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PromptLookupDrafter, "observe", interrupted)
    monkeypatch.setattr(PromptLookupDrafter, "release", lambda self, request_id: released.append(request_id))
    before = recording.read_bytes()
    assert replay(recording, "--json", tmp_path / "out.json") == 130
    assert released == [1]
    assert not (tmp_path / "out.json").exists()
    assert recording.read_bytes() == before
    assert "interrupted" in capsys.readouterr().err


def test_a_worker_records_what_ends(tmp_path: Path) -> None:
    """A worker records an output before it sends the last reply.

    If the file cannot be written, callers notice nothing, and the failure is counted.
    """
    target, path = talking_target(), tmp_path / "day.jsonl"
    with (
        Recorder(path, target.vocab_size, "tiny") as recorder,
        working(target, {"prompt-lookup": PromptLookupDrafter(257)}, recorder=recorder) as server,
        calling(server) as client,
    ):
        reported = [
            [token for reply in client.generate(prompt, SamplingSettings(12, 0.7, seed=5)) for token in reply.tokens]
            for prompt in (PROMPTS[0], [("user", "abc")], [5, 6, 7])
        ]
        assert [each.generated.tolist() for each in read_recordings([path])] == reported
        assert [each.group for each in read_recordings([path])] == ["text", "chat", "token_ids"]
        recorder.close()
        for _ in range(2):
            assert sum(len(reply.tokens) for reply in client.generate([5, 6, 7], SamplingSettings(3))) == 3
        assert isinstance(server.service, DecodeService)
        [count] = [metric.samples[0].value for metric in server.service.metrics.recording_failures.collect()]
        assert count == 2
    assert len(read_recordings([path])) == 3


def test_a_replay_learns_into_a_calibration_and_begins_with_it(
    recording: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, words = tmp_path / "calibration.json", ["--datastore", store, "--drafter", "hybrid", "--nodes", 8]
    weights = []
    for _ in range(2):
        assert replay(recording, *words, "--calibration", kept) == 0
        capsys.readouterr()
        assert main(["calibration", str(kept), "--json"]) == 0
        known = {each["source"]: each["predictions"] for each in json.loads(capsys.readouterr().out)}
        weights.append(known["datastore texts"])
    assert weights[1] > 1.5 * weights[0]
    assert replay(recording, "--datastore", store, "--calibration", kept) == 2
    assert "belongs to one drafter; name one --drafter and one size of --nodes" in capsys.readouterr().err
