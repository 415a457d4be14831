"""``suffolk generate`` on a tiny model: text, report, comparison, and one line for every bad input."""

from __future__ import annotations

import io
import json
import re
import string
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from datastore.datastore import Datastore
from datastore.draft_tree import DraftTree
from datastore.manifest import SEGMENTS_NAME, Manifest, publish
from datastore.segment import separated, write_segment
from datastore.tokenizer import fingerprint, load_tokenizer
from serving.decoding.cost_measurement import measure
from serving.decoding.cost_store import CostKey, CostStore, save_costs
from serving.decoding.engine import Engine
from serving.decoding.generation import Generation
from serving.decoding.settings import VERIFICATIONS, SamplingSettings
from serving.decoding.target import Target
from suffolk.cli import main
from tests.stores import make_store
from tests.tiny_models import save_tiny

PROMPT = "abcabcabcabc"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module", autouse=True)
def known_costs(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What passes cost is measured once and kept, so that no command has to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        target = Target.load(model)
        key = CostKey.of(target)
        path = CostStore().path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_costs(measure(target, 1), key, path)
        yield


def store_of(path: Path, tokenizer: str | None, order_depth: int = 64) -> str:
    (path / SEGMENTS_NAME).mkdir(parents=True)
    tokens = separated([list(b"abcabcabd" * 9)], 257)
    segment = path / SEGMENTS_NAME / "000000.seg"
    entry = write_segment(segment, tokens, vocab_size=257, order_depth=order_depth, fingerprint=tokenizer)
    publish(path, Manifest(1, (entry,), 257, order_depth, tokenizer, "2026-01-01T00:00:00Z"))
    return str(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: str) -> str:
    return store_of(tmp_path_factory.mktemp("stores") / "bytes", fingerprint(load_tokenizer(model)))


def generate(*words: str) -> int:
    return main(["generate", "--max-new-tokens", "24", *words])


def test_every_drafter_gives_the_same_text(model: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = set()
    for drafter in ("none", "datastore", "prompt-lookup", "hybrid"):
        assert (
            generate("--model", model, "--datastore", store, "--drafter", drafter, "--temperature", "0.8", PROMPT) == 0
        )
        captured = capsys.readouterr()
        texts.add(captured.out)
        assert "tokens    24 (length)" in captured.err
        assert "0 missed" in captured.err
        assert "time      draft" in captured.err
    assert len(texts) == 1


def test_all_datastores_are_asked(
    model: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store_of(tmp_path / "other", fingerprint(load_tokenizer(model)))
    asked: set[Path] = set()
    draft_batch = Datastore.draft_batch

    def watched(self: Datastore, *args: Any, **kwargs: Any) -> list[DraftTree]:
        asked.add(self.path)
        return draft_batch(self, *args, **kwargs)

    monkeypatch.setattr(Datastore, "draft_batch", watched)
    words = ["--model", model, "--datastore", store, "--datastore", other, "--drafter", "datastore", PROMPT]
    assert generate(*words) == 0
    assert "tokens    24 (length)" in capsys.readouterr().err
    assert asked == {Path(store), Path(other)}


@pytest.mark.parametrize("drafter", ["early-exit", "draft-model"])
def test_a_network_drafts_to_the_end_with_few_nodes(
    drafter: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ["--exit-layers", "1"] if drafter == "early-exit" else ["--draft-model", model]
    assert generate("--model", model, *network, "--drafter", drafter, "--max-nodes", "4", "--ignore-eos", PROMPT) == 0
    assert " 0 missed" in capsys.readouterr().err


def test_the_comparison_and_the_json_report(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "stats.json"
    words = ["--model", model, "--datastore", store, "--compare-plain", "--stats-json", str(report), PROMPT]
    assert generate(*words) == 0
    assert "output identical = yes" in capsys.readouterr().err
    stats = json.loads(report.read_text())
    assert stats["plain"]["identical"] is True
    assert stats["tokens"] == len(stats["tokens_generated"]) == 24
    assert stats["drafter"] == "hybrid"
    assert set(stats["seconds"]) == {"prefill", "draft", "wait", "forward", "verify", "compact", "other"}


def test_what_is_learned_is_kept_shown_and_explained(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "calibration.json"
    words = ["--model", model, "--datastore", store, "--calibration", str(kept), "--class", "letters", PROMPT]
    assert generate(*words) == 0
    text = capsys.readouterr().out
    assert generate("--explain", *words) == 0  # begins with what was learned
    captured = capsys.readouterr()
    assert captured.out == text
    assert re.search(
        r"at 13: \d+ nodes retrieved; .*\d+ proposed \(.*\), [\d.]+ tokens expected; \d+ said, \d+ of them proposed",
        captured.err,
    )
    assert main(["stats", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert "prompt-lookup, all requests:" in shown
    assert "prompt-lookup, class letters:" in shown
    assert main(["stats", str(kept), "--json"]) == 0
    facts = {(each["source"], each["class"]): each for each in json.loads(capsys.readouterr().out)}
    assert facts["prompt-lookup", "letters"]["predictions"] > 0


def test_a_calibration_that_is_none_is_refused_and_left_alone(model: str, tmp_path: Path) -> None:
    kept = tmp_path / "calibration.json"
    kept.write_text("# a file of mine\n")
    assert generate("--model", model, "--calibration", str(kept), PROMPT) == 2
    assert main(["stats", str(kept)]) == 2
    assert kept.read_text() == "# a file of mine\n"


def test_only_a_hybrid_can_be_explained(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--model", model, "--explain", "--drafter", "prompt-lookup", PROMPT) == 2
    assert (
        "--explain is of hybrid, which decides in each step what to draft, and not of prompt-lookup; add --datastore"
        in capsys.readouterr().err
    )


def test_the_prompt_can_come_from_stdin(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    assert generate("--model", model) == 0
    from_stdin = capsys.readouterr().out
    assert generate("--model", model, PROMPT) == 0
    assert capsys.readouterr().out == from_stdin


def test_colours_change_nothing_but_colours(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--model", model, "--colour", "never", PROMPT) == 0
    plain = capsys.readouterr()
    assert "\x1b" not in plain.out + plain.err
    assert generate("--model", model, "--colour", "always", PROMPT) == 0
    coloured = capsys.readouterr()
    for code in ("\x1b[38;5;32m", "\x1b[38;5;208m", "\x1b[38;5;36m", "\x1b[0m"):
        assert code in coloured.err  # the legend
    stripped = coloured.out
    for code in ("\x1b[38;5;208m", "\x1b[0m"):
        stripped = stripped.replace(code, "")
    assert stripped == plain.out


def test_a_stop_string_ends_the_text_before_it(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    generate("--model", model, PROMPT)
    text = capsys.readouterr().out.rstrip("\n")
    stop = text[4:6]
    assert generate("--model", model, "--stop", stop, PROMPT) == 0
    captured = capsys.readouterr()
    assert captured.out.rstrip("\n") == text[: text.index(stop)].rstrip("\n")
    assert "(stop)" in captured.err


def test_penalties_bad_words_and_logprobs(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "stats.json"
    assert generate("--model", model, "--logprobs", "2", "--stats-json", str(report), PROMPT) == 0
    plain = json.loads(report.read_text())
    assert [each["token"] for each in plain["logprobs"]] == plain["tokens_generated"]
    for each in plain["logprobs"]:
        (likeliest, value), _ = each["alternatives"]
        assert (each["token"], each["value"]) == (likeliest, value)  # greedy
        assert value <= 0
    tokenizer = load_tokenizer(model)
    ids = {letter: tokenizer.encode(letter).ids[0] for letter in string.ascii_letters}
    letters = [letter for token in plain["tokens_generated"] for letter in ids if ids[letter] == token]
    for words in (
        ["--repetition-penalty", "1.5"],
        ["--presence-penalty", "2"],
        ["--frequency-penalty", "2"],
        ["--temperature", "1", "--min-p", "0.9"],
        ["--bad-words", letters[0], "--bad-words", letters[-1]],
    ):
        drafted = generate("--model", model, "--compare-plain", "--stats-json", str(report), *words, PROMPT)
        assert drafted == 0
        changed = json.loads(report.read_text())
        assert changed["plain"]["identical"] is True
        if words[0] == "--bad-words":
            assert not {ids[letters[0]], ids[letters[-1]]} & set(changed["tokens_generated"])
        elif words[0] != "--temperature":
            assert changed["tokens_generated"] != plain["tokens_generated"]
    capsys.readouterr()


def test_verifications(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[SamplingSettings] = []
    start = Engine.generate

    def spy(engine: Engine, prompt: list[int], settings: SamplingSettings, *more: Any) -> Generation:
        asked.append(settings)
        return start(engine, prompt, settings, *more)

    monkeypatch.setattr(Engine, "generate", spy)
    report = tmp_path / "stats.json"
    words = ["--model", model, "--temperature", "1.5", "--stats-json", str(report), PROMPT]
    tokens = {}
    for name in VERIFICATIONS:
        thresholds = ["--epsilon", "0.2", "--delta", "0.1"] if name == "typical" else []
        assert generate("--verification", name, *thresholds, *words) == 0
        found = json.loads(report.read_text())
        assert found["verification"] == asked[-1].verification == name
        tokens[name] = found["tokens_generated"]
    assert (asked[-1].epsilon, asked[-1].delta) == (0.2, 0.1)
    assert tokens["match"] == tokens["rejection"]  # the drafter samples no chains
    assert capsys.readouterr().err.count("lossy     typical acceptance") == 1
    with pytest.raises(SystemExit) as shown:
        main(["generate", "--help"])
    assert shown.value.code == 0
    assert "typical: LOSSY" in " ".join(capsys.readouterr().out.split())


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a refused command prints."""
    assert generate(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("suffolk: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


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
            "--max-match 16 + --max-depth 10 is above the datastore's order depth 20",
        ),
        (["--model", model, "--datastore", str(tmp_path / "nothing"), "x"], "nothing"),
        (["--model", model, "--drafter", "datastore", "x"], "needs a datastore"),
        (["--model", model, "--datastore", "grpc://127.0.0.1:1/x", "x"], "127.0.0.1:1"),
        (
            ["--model", model, "--datastore", "http://127.0.0.1:1/x", "x"],
            "not the URL of a service; the forms are grpc://",
        ),
        (["--model", model, "--max-match", "0", "x"], "--max-match is 0"),
        (
            ["--model", model, "--max-depth", "9" * 20, "x"],
            "--max-depth is 99999999999999999999; it must be between 1 and 4096",
        ),
        (["--model", model, "--max-nodes", "0", "x"], "--max-nodes is 0; it must be in 1..1024"),
        (["--model", model, "--temperature", "-1", "x"], "--temperature is -1.0"),
        (["--model", model, "--min-p", "2", "x"], "--min-p is 2.0; it must be between 0"),
        (["--model", model, "--repetition-penalty", "0", "x"], "--repetition-penalty is 0.0; it must be between 0.01"),
        (["--model", model, "--presence-penalty", "3", "x"], "--presence-penalty is 3.0; it must be between -2 and 2"),
        (["--model", model, "--frequency-penalty", "-3", "x"], "--frequency-penalty is -3.0"),
        (["--model", model, "--bad-words", " ", "x"], "--bad-words is empty; name a text"),
        (["--model", model, "--logprobs", "21", "x"], "--logprobs is 21; it must be between 0 and 20"),
        (["--model", model, "--logprobs", "2", "x"], "--logprobs 2 goes into the JSON report only; add --stats-json"),
        (
            ["--model", model, "--verification", "typical", "--epsilon", "0", "x"],
            "--epsilon is 0.0; it must be above 0",
        ),
        (
            ["--model", model, "--epsilon", "0.1", "x"],
            "--epsilon 0.1 does nothing under --verification match; leave it",
        ),
        (["--model", model, "--device", "abacus", "x"], "device 'abacus' is unknown; use auto"),
        (["--model", model, "--threads", "0", "x"], "--threads is 0"),
        (["--model", model, "--threads", "9" * 14, "x"], "--threads is 99999999999999; it must be in 1..1024"),
        (["--model", model, "ab\udcff"], "the prompt has a surrogate, '\\udcff', at 2"),
        (["--model", model, "--drafter", "none", "--costs", "/nowhere", "x"], "is of no use with --drafter none"),
        (["--model", model, "--chat", "x"], "has no chat template"),
        (["--model", model, "--datastore", store, "--deadline-ms", "0", "x"], "--deadline-ms is 0.0"),
        (["--model", model, ""], "the prompt is empty"),
    ]
    for words, message in cases:
        assert message in refused(capsys, *words)


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

    monkeypatch.setattr("serving.decoding.cost_store.find_costs", measured)
    assert "the prompt has 5000 tokens" in refused(capsys, "--model", model, "x" * 5000)


def test_characters_that_stdout_does_not_know_are_escaped(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They ended the text in its middle, with a traceback."""
    words = ["--model", model, "--temperature", "2", "--max-new-tokens", "200", PROMPT]
    shown = {}
    for encoding in ("ascii", "utf-8"):
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", stdout)
        assert generate(*words) == 0
        shown[encoding] = stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert shown["ascii"] == shown["utf-8"].decode().encode("ascii", "backslashreplace") != shown["utf-8"]


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in Path(model).iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**20, 2**22], "data_offsets": [0, 2**44]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert "needs 32768.00 GiB for its weights" in refused(capsys, "--model", str(tmp_path), "x")


@pytest.fixture(autouse=True)
def same_threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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
    ("words", "said"),
    [
        (["--stats-json", "."], "--stats-json . is a folder; name a file"),
        (["--model", __file__], "is a file, not a model folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_few_words(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert generate("--model", model, "--drafter", "none", *words, PROMPT) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert said in err
    assert len(err) < 300
