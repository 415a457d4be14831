"""The benchmarks as commands, on tiny data: what they write and that it is true. Times are never judged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from suffolk.serving.replay.read import read_recordings
from tests.support.building import VOCAB_SIZE, make_texts, suffolk, tokenizer_json, write_jsonl, write_tokenizer
from tests.support.tiny_models import tiny_model

pytest.importorskip("matplotlib")
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


def bench(*arguments: str | Path) -> str:
    done = suffolk("bench", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    assert {"benchmark", "command", "commit", "versions", "machine", "seed", "settings", "results"} <= set(found)
    assert found["machine"]["cpu"]
    assert found["versions"]["suffolk"]
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer, a corpus, and a datastore of it."""
    path = tmp_path_factory.mktemp("bench")
    corpus = write_jsonl(path / "corpus.jsonl", make_texts(60))
    done = suffolk("build", "--tokenizer", write_tokenizer(path), "--output", path / "store", corpus)
    assert done.returncode == 0, done.stderr
    return path


def test_retrieval_beside_draftretriever_and_over_grpc(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("draftretriever")
    path = tmp_path / "retrieval.json"
    options = [
        "--queries",
        "30",
        "--called",
        "12",
        "--rounds",
        "1",
        "--checked",
        "12",
        "--batches",
        "1",
        "4",
        "--seed",
        "3",
    ]
    shown = bench("retrieval", folder / "store", *options, "--against", "draftretriever", "--grpc", "--json", path)
    report = read_report(path)
    assert report["seed"] == 3
    assert report["versions"]["draftretriever"]
    for name in ("seen", "unseen"):
        found = report["results"]["sets"][name]
        assert found["checked_by_scan"] == {
            "contexts": 12,
            "nodes": found["checked_by_scan"]["nodes"],
            "all_exact": True,
        }
        assert set(found["latency"]) == {
            "lookup",
            "draft",
            "lookup+draft",
            "draftretriever",
            "draftretriever, suffix loop",
        }
        assert all(times["calls"] == 12 and times["p50_us"] > 0 for times in found["latency"].values())
        assert set(found["times_faster"]["draft against draftretriever"]) == {"in_rounds", "in_turn"}
        native = report["results"]["native"][name]
        assert all(times["calls"] == 30 and times["p50_us"] > 0 for times in native.values())
        assert not found["drafts"]["draftretriever"]["counts_given"]
        ways = report["results"]["batches"][name]
        assert set(ways) == {"in-process, lookup", "in-process, draft", "grpc, lookup", "grpc, draft"}
        assert all(set(times) == {"1", "4"} and times["4"]["calls"] == 3 for times in ways.values())
    seen = report["results"]["sets"]["seen"]["drafts"]
    assert seen["mean_match_length"] == 16
    assert seen["found"] == 1
    assert report["results"]["draftretriever_index"]["index_bytes"] > 0
    assert report["results"]["draftretriever_searches"] >= 2 * 12 * 10
    assert not report["results"]["draftretriever_index"]["reused"]
    assert "equal a scan of the whole corpus" in shown
    bench("retrieval", folder / "store", *options, "--against", "draftretriever", "--json", path)
    assert read_report(path)["results"]["draftretriever_index"]["reused"]


def test_retrieval_of_texts_from_files_on_the_first_tokens(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "retrieval.json"
    texts = write_jsonl(tmp_path / "new.jsonl", make_texts(5, seed=9))
    options = ["--queries", "8", "--rounds", "1", "--checked", "8", "--tokens", "900"]
    bench("retrieval", folder / "store", *options, "--contexts", texts, "--json", path)
    results = read_report(path)["results"]
    assert results["datastore"]["tokens"] == 900
    assert "5 texts" in results["sets"]["unseen"]["how"]
    assert results["sets"]["unseen"]["drafts"]["mean_match_length"] < 16
    assert results["batches"] == {}
    assert set(results["sets"]["seen"]["latency"]) == {"lookup", "draft", "lookup+draft"}


def test_build_gives_the_same_tokens_both_ways(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("draftretriever")
    pytest.importorskip("pydivsufsort")
    path = tmp_path / "build.json"
    sorting = ("--sort-tokens", "10000", "--sort-repeats", "20000", "--sort-rounds", "2", "--threads", "2")
    kept = tmp_path / "suffolk-bench" / "build" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("not yours")
    shown = bench("build", folder / "corpus.jsonl", "--tokenizer", folder / "tokenizer", *sorting, "--json", path)
    results = read_report(path)["results"]
    assert results["documents"] == results["documents_with_equal_ids"] == 60
    ours, theirs = (runs[0] for runs in results["runs"].values())
    assert ours["tokens"] == theirs["tokens"] > 0
    assert ours["text_bytes"] == theirs["text_bytes"] == sum(len(text.encode()) for text in make_texts(60))
    assert all(run["peak_bytes"] >= run["largest_process_bytes"] > 1 << 20 for run in (ours, theirs))
    assert results["times_faster"] > 0
    assert "equal token ids: 60 of 60" in shown
    inputs = list(results["sorting"]["inputs"].values())
    assert [list(each["tokens_per_second"]) for each in inputs] == [
        ["pydivsufsort", "suffolk, 1 thread", "suffolk, 2 threads"],
        ["suffolk, 2 threads"],
        ["suffolk, 2 threads"],
    ]
    assert all(len(seconds) == 2 for each in inputs for seconds in each["seconds"].values())
    assert results["sorting"]["segment_memory"]["peak_bytes"] > 0
    assert kept.read_text() == "not yours"
    assert list((tmp_path / "suffolk-bench").iterdir()) == [kept.parent]


def test_counts_equal_those_of_infini_gram(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("infini_gram")
    path = tmp_path / "counts.json"
    options = ("--queries", "20", "--lengths", "1", "2", "5", "--rounds", "1", "--json", path)
    shown = bench("counts", folder / "store", *options)
    assert "counts of 120 sequences: all equal" in shown
    results = read_report(path)["results"]
    assert set(results["lengths"]) == {"1", "2", "5"}
    assert all(found["counts_equal"] for found in results["lengths"].values())
    assert results["infini_gram_index"]["bytes_per_token"] > 4
    bench("counts", folder / "store", *options)
    assert read_report(path)["results"]["infini_gram_index"]["reused"]


def test_memory_gives_equal_answers_under_every_limit(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    shown = bench(
        "memory", folder / "store", "--limits", "1", "0.5", "--queries", "40", "--rounds", "2", "--json", path
    )
    results = read_report(path)["results"]
    ways = [(run["limit"], run["residency"]) for run in results["runs"]]
    assert ways == [(1.0, "mmap"), (1.0, "warm"), (0.5, "mmap"), (0.5, "warm")]
    assert len({run["digest"] for run in results["runs"]} | {run["digest_again"] for run in results["runs"]}) == 1
    for run in results["runs"]:
        assert (run["cold"]["calls"], run["steady"]["calls"]) == (40, 80)
        assert run["open_s"] > 0
        assert 0 < run["cold"]["lookup"]["p50_us"] < run["cold"]["p50_us"]
    assert results["runs"][1]["resident_bytes"] == results["datastore"]["bytes"]
    assert "equal answers in all 4 processes" in shown


def test_memory_refuses_limits_that_are_no_shares(folder: Path, tmp_path: Path) -> None:
    done = suffolk("bench", "memory", folder / "store", "--limits", "0", "--json", tmp_path / "x.json")
    assert done.returncode == 2
    assert "a limit is 0.0; it must be a share above 0" in done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in fp64 with the corpus's tokenizer: any difference between outputs would be a fault."""
    path = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=VOCAB_SIZE).save_pretrained(path)
    (path / "plain.json").write_text(tokenizer_json())
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path / "plain.json"), eos_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    return path


def test_decode_compares_every_drafter_with_plain_decoding(folder: Path, model: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    text = make_texts(1)[0]
    row = {"id": "one", "set": "code", "messages": [{"role": "user", "content": text[:80]}], "prefill": "def value"}
    (prompts / "code.jsonl").write_text(json.dumps(row) + "\n")
    (prompts / "free.jsonl").write_text(json.dumps({"prompt": text[:120]}) + "\n" + json.dumps({"prompt": "a" * 1000}))
    path = tmp_path / "decode.json"
    options = ["--max-new-tokens", "24", "--ignore-eos", "--control", "--rounds", "2", "--threads", "1"]
    options += ["--assistant", str(model), "--record", str(tmp_path / "texts.jsonl")]
    stores = ["--datastore", folder / "store"] * 2  # both are asked: the last one took the place of the first
    command = ["decode", "--model", model, *stores, "--prompts", prompts, *options]
    shown = bench(*command, "--json", path)
    results = read_report(path)["results"]
    assert read_report(path)["settings"]["datastores"] == [str(folder / "store")] * 2
    rivals = {"transformers", "transformers prompt-lookup", "transformers assisted"}
    ways = {"none", "none, again", "prompt-lookup", "datastore", "hybrid"} | rivals
    assert set(results["summary"]) == {"code, chat", "code, prefill", "free", "all"}
    for found in results["summary"].values():
        assert set(found) == ways
        for each in found.values():
            assert each["identical"] == each["runs"] > 0
            assert each["mean_generated_length"] >= 1
            assert each["tokens_per_second_median"] > 0
    every = results["summary"]["all"]
    assert {name: each["runs"] for name, each in every.items()} == dict.fromkeys(ways, 6)
    assert {each["tokens"] for each in every.values()} == {6 * 24}
    assert [(each["group"], each["prompt"]) for each in results["prompts_skipped"]] == [("free", "free.jsonl:2")]
    assert len(results["runs"]) == 6 * len(ways)
    recorded = Counter((each.drafter, each.group) for each in read_recordings([tmp_path / "texts.jsonl"]))
    groups = ("code, chat", "code, prefill", "free")  # of the first round
    assert recorded == {
        (name, group): 1 for name in ("none", "prompt-lookup", "datastore", "hybrid") for group in groups
    }
    assert "left out, too long for the model with the answer: 1" in shown


def test_decode_refuses_what_is_missing_before_loading(model: Path, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    done = suffolk("bench", "decode", "--model", model, "--prompts", tmp_path / "p.jsonl", "--drafters", "datastore")
    assert done.returncode == 2
    assert "needs a datastore" in done.stderr


def test_batch_refuses_what_only_decode_does(model: Path, tmp_path: Path) -> None:
    """A recording was promised, and none was written."""
    done = suffolk("bench", "batch", "--model", model, "--prompts", tmp_path, "--record", tmp_path / "r.jsonl")
    assert done.returncode == 2
    assert "--control and --record belong to 'suffolk bench decode'" in done.stderr


def test_a_report_goes_into_a_folder_that_exists(model: Path, tmp_path: Path) -> None:
    for option in ("--json", "--plot"):
        file = tmp_path / "new" / "x.json"
        done = suffolk("bench", "decode", "--model", model, "--prompts", tmp_path, option, file)
        assert done.returncode == 2
        assert f"{option} {file}: there is no such folder" in done.stderr
    assert not (tmp_path / "new").exists()


def test_batch_compares_throughput_at_every_size(folder: Path, model: Path, tmp_path: Path) -> None:
    text = make_texts(1)[0]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": text[at : at + 60]}) + "\n" for at in (0, 40, 80)))
    path = tmp_path / "batch.json"
    options = [
        "--max-new-tokens",
        "16",
        "--ignore-eos",
        "--batches",
        "1",
        "3",
        "--rounds",
        "2",
        "--drafters",
        "hybrid,useless",
    ]
    command = ["batch", "--model", model, "--datastore", folder / "store", "--prompts", tmp_path / "p.jsonl", *options]
    assert "cache of the engine" in bench(*command, "--json", path)
    ties = read_report(path)["results"]["near_ties"]
    assert ties["tokens_compared"] == 12 * 16 * 6 - 12 * 16 // 2  # all but the first run
    assert ties["differences"] == []
    assert ties["largest_gap"] == ties["per_100000_tokens"] == 0
    batches = read_report(path)["results"]["batches"]
    assert {size: each["hybrid"]["requests"] for size, each in batches.items()} == {"1": 12, "3": 12}
    for size, ways in batches.items():
        for each in ways.values():
            assert each["identical"] == each["requests"]
            assert each["tokens_per_second"] > 0
        assert ways["none"]["speed_up"] == 1.0
        assert ways["none"]["tokens_a_turn"] == pytest.approx(1.0), size
    done = suffolk("bench", *command[:-2], "--control")
    assert done.returncode == 2
    assert "belong to 'suffolk bench decode'" in done.stderr
