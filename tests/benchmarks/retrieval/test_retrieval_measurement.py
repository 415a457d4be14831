"""``suffolk bench retrieval`` on tiny data writes a correct report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.building import make_texts, write_jsonl
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


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
    shown = bench("retrieval", folder / "store", *options, "--against", "draftretriever", "--grpc", *result_files(path))
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
    bench("retrieval", folder / "store", *options, "--against", "draftretriever", *result_files(path))
    assert read_report(path)["results"]["draftretriever_index"]["reused"]


def test_retrieval_of_texts_from_files_on_the_first_tokens(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "retrieval.json"
    texts = write_jsonl(tmp_path / "new.jsonl", make_texts(5, seed=9))
    options = ["--queries", "8", "--rounds", "1", "--checked", "8", "--tokens", "900"]
    bench("retrieval", folder / "store", *options, "--contexts", texts, *result_files(path))
    results = read_report(path)["results"]
    assert results["datastore"]["tokens"] == 900
    assert "5 texts" in results["sets"]["unseen"]["how"]
    assert results["sets"]["unseen"]["drafts"]["mean_match_length"] < 16
    assert results["batches"] == {}
    assert set(results["sets"]["seen"]["latency"]) == {"lookup", "draft", "lookup+draft"}
