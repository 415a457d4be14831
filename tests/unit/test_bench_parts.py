"""The parts that benchmarks are made of."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import provenance
from benchmarks.contexts import join_documents, read_texts, sample_seen, spoil
from benchmarks.decoding_summary import summarize
from benchmarks.draftretriever_package import prefixes
from benchmarks.exactness import CorpusScan, accepted_length, tree_paths
from benchmarks.latency import time_alternating, time_rounds
from benchmarks.memory import family_memory, resident_memory
from benchmarks.plot import Panel, require_plots, write_plot
from benchmarks.prompts import load_prompts
from benchmarks.quality import check_counts
from benchmarks.quantiles import quantiles_us
from benchmarks.report import Report, write_report
from benchmarks.retrieval_options import RetrievalOptions
from benchmarks.substore import first_tokens
from benchmarks.table import format_table
from benchmarks.watched_process import run_watched
from datastore import open_datastore
from datastore.draft_tree import DraftTree
from datastore.errors import Internal, InvalidArgument, NotFound, ResourceExhausted, Unsupported
from demo.__main__ import busy
from serving.decoding.stats import PARTS
from tests import oracle
from tests.stores import make_store

VOCAB = 7


def make_documents(count: int, size: int, seed: int) -> list[list[int]]:
    chooser = np.random.default_rng(seed)
    return [chooser.integers(0, VOCAB, int(chooser.integers(1, size))).tolist() for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_scan_finds_what_the_oracle_finds(tmp_path: Path, seed: int) -> None:
    documents = make_documents(12, 40, seed)
    with make_store(tmp_path / "store", [documents[:5], documents[5:]], vocab_size=VOCAB) as store:
        scan = CorpusScan(*join_documents(store))
    chooser = np.random.default_rng(seed)
    for _ in range(25):
        context = chooser.integers(0, VOCAB, int(chooser.integers(1, 9))).tolist()
        min_match = int(chooser.integers(1, 4))
        assert scan.lookup(context, 6, min_match) == oracle.lookup(documents, context, 6, min_match)
        assert scan.draft(context, 6, min_match, 4, 20) == oracle.draft(documents, context, 6, min_match, 4, 20)


def test_scan_of_an_absent_token_finds_nothing(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 1]]], vocab_size=VOCAB) as store:
        scan = CorpusScan(*join_documents(store))
    assert scan.lookup([5], 4, 1) == (0, 0)
    assert scan.draft([5], 4, 1, 4, 20) == []


def test_seen_contexts_and_their_continuations_stand_in_one_document(tmp_path: Path) -> None:
    documents = make_documents(20, 30, 1)
    with make_store(tmp_path / "store", [documents], vocab_size=VOCAB) as store:
        seen = sample_seen(*join_documents(store), 60, 5, 4, 3)
    assert len(seen.contexts) == 60
    for context, continuation in zip(seen.contexts, seen.continuations, strict=True):
        assert len(context) == 5
        assert 1 <= len(continuation) <= 4
        assert oracle.occurrences(documents, [*context, *continuation])
    assert any(len(continuation) < 4 for continuation in seen.continuations)  # documents end


def test_contexts_depend_on_the_seed_alone(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [make_documents(20, 30, 1)], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
    assert sample_seen(tokens, starts, 9, 5, 4, 3) == sample_seen(tokens, starts, 9, 5, 4, 3)
    assert sample_seen(tokens, starts, 9, 5, 4, 3) != sample_seen(tokens, starts, 9, 5, 4, 4)


def test_contexts_longer_than_every_document_are_refused(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
    with pytest.raises(InvalidArgument, match="no document has more than 3 tokens"):
        sample_seen(tokens, starts, 5, 3, 4, 0)


def test_spoiling_changes_one_token_of_the_later_half(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [make_documents(20, 30, 1)], vocab_size=VOCAB) as store:
        seen = sample_seen(*join_documents(store), 40, 6, 4, 3)
    unseen = spoil(seen, VOCAB, 5)
    for before, after in zip(seen.contexts, unseen.contexts, strict=True):
        changed = [place for place in range(6) if before[place] != after[place]]
        assert len(changed) == 1
        assert changed[0] >= 3
        assert 0 <= after[changed[0]] < VOCAB


def test_a_wrong_answer_stops_the_measurement(tmp_path: Path) -> None:
    options = RetrievalOptions(tmp_path / "store", tmp_path, queries=10, checked=10, context=4)
    documents = make_documents(20, 30, 1)
    with make_store(tmp_path / "store", [documents], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
        seen = sample_seen(tokens, starts, 10, 4, 4, 3)
        checked = check_counts(store, CorpusScan(tokens, starts), seen, options)
        assert checked["contexts"] == 10
        assert checked["nodes"] > 0
        wrong = tokens.copy()
        wrong[::3] = 0
        with pytest.raises(Internal, match="not what a scan of the corpus finds"):
            check_counts(store, CorpusScan(wrong, starts), seen, options)


def test_accepted_length_follows_the_true_continuation() -> None:
    tree = DraftTree(
        np.array([3, 4, 5, 9], np.int32),
        np.array([-1, 0, 1, 0], np.int32),
        np.ones(4, np.float32),
        np.ones(4, np.uint8),
    )
    assert tree_paths(tree) == [(3,), (3, 4), (3, 4, 5), (3, 9)]
    paths = set(tree_paths(tree))
    assert accepted_length(paths, [3, 4, 5, 6]) == 3
    assert accepted_length(paths, [3, 9, 5]) == 2
    assert accepted_length(paths, [4]) == 0
    assert accepted_length(paths, []) == 0


def test_prefixes_drop_the_filling() -> None:
    assert prefixes([[1, 2, -2], [1, 3, 4]]) == {(1,), (1, 2), (1, 3), (1, 3, 4)}


def test_first_tokens_are_the_datastores_own(tmp_path: Path) -> None:
    documents = make_documents(20, 30, 1)
    flat = [token for document in documents for token in document]
    with make_store(tmp_path / "store", [documents[:9], documents[9:]], vocab_size=VOCAB) as store:
        path = first_tokens(store, 100, tmp_path / "work")
        again = first_tokens(store, 100, tmp_path / "work")

    assert again == path
    with open_datastore(path) as part:
        tokens, _ = join_documents(part)
        assert tokens.tolist() == flat[:100]


@pytest.mark.parametrize("timing", [time_rounds, time_alternating])
def test_every_call_gets_every_question_in_every_round(timing: object) -> None:
    asked: list[tuple[str, int]] = []
    calls = {name: lambda question, name=name: asked.append((name, question)) for name in ("a", "b")}
    seconds = timing(calls, list(range(10)), 3, 0)  # type: ignore[operator]
    assert {name: len(times) for name, times in seconds.items()} == {"a": 30, "b": 30}
    assert sorted(asked) == sorted([(name, question) for name in "ab" for question in range(10)] * 4)
    assert asked != sorted(asked)


def test_rounds_keep_calls_together_and_alternation_does_not() -> None:
    names: list[str] = []
    calls = {name: lambda question, name=name: names.append(name) for name in ("a", "b")}
    time_rounds(calls, list(range(3)), 1, 0)
    assert "".join(names) == "aaabbb" + "bbbaaa"
    names.clear()
    time_alternating(calls, list(range(3)), 0, 0)
    assert "".join(names) == "abbaab"


def test_quantiles_are_in_microseconds() -> None:
    found = quantiles_us([0.001] * 98 + [0.002, 0.003])
    assert found["p50_us"] == pytest.approx(1000)
    assert found["p99_us"] > 1900
    assert found["mean_us"] == pytest.approx(1030)
    assert found["calls"] == 100
    assert quantiles_us([]) == {"calls": 0}


def test_table_columns_line_up() -> None:
    lines = format_table(("name", "value"), [["a", 1234567], ["longer", 0.12345], ["none", None]]).splitlines()
    assert lines == [
        "name        value",
        "------  ---------",
        "a       1,234,567",
        "longer      0.123",
        "none            -",
    ]


def test_family_memory_counts_children() -> None:
    child = "import sys; data = b'x' * 60_000_000; print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; data = b'x' * 60_000_000; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    now, largest = family_memory(process.pid)
    process.stdin.close()
    process.wait()
    process.stdout.close()
    assert now > 120_000_000
    assert 60_000_000 < largest < 120_000_000
    assert family_memory(process.pid) == (0, 0)


def test_resident_memory_is_this_processs() -> None:
    before = resident_memory()
    data = np.ones(50_000_000, np.uint8)
    assert resident_memory()["anonymous"] - before["anonymous"] > 40_000_000
    assert data[0] == 1


def test_watched_command_gives_output_time_and_memory() -> None:
    watched = run_watched(
        [sys.executable, "-c", "data = b'x' * 80_000_000; print('done'); import time; time.sleep(0.2)"]
    )
    assert watched.output == "done\n"
    assert watched.seconds >= 0.2
    assert watched.peak_bytes > 80_000_000
    assert watched.cpu_seconds > 0


def test_watched_command_that_fails_says_why() -> None:
    with pytest.raises(Internal, match="failed with 3.*no luck"):
        run_watched([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"])


def test_report_names_machine_versions_commit_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(Report("retrieval", 7, {"queries": 3}, {"speed": 1.5}, ("a note",), ("numpy",)), path)
    found = json.loads(path.read_text())
    assert found["benchmark"] == "retrieval"
    assert found["seed"] == 7
    assert found["results"] == {"speed": 1.5}
    assert found["notes"] == ["a note"]
    assert found["machine"]["cpu"]
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["machine"]["memory_bytes"] > 1 << 28
    assert found["versions"]["numpy"] == np.__version__
    assert "commit" in found
    assert "command" in found


def test_commit_is_git_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    monkeypatch.setattr(provenance, "HOME", tmp_path)
    assert provenance.commit() is None
    (tmp_path / "file").write_text("a")
    git("init")
    git("add", "file")
    git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-m", "first")
    clean = provenance.commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "file").write_text("b")
    assert provenance.commit() == f"{clean}+changes"


def test_report_into_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceExhausted, match="cannot be written"):
        write_report(Report("x", 0, {}, {}), tmp_path / "file" / "report.json")


def test_results_stay_when_the_disk_is_full(tmp_path: Path) -> None:
    """Those of an earlier run were cut off before the new ones were written, and both were lost."""
    pytest.importorskip("matplotlib")
    report, plot = tmp_path / "report.json", tmp_path / "plot.png"
    panels = [Panel("speed", "s", ["a"], {"x": [1.0]})]
    write_report(Report("first", 0, {}, {}), report)
    write_plot(plot, "first", panels)
    before = report.read_bytes(), plot.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ResourceExhausted, match="report.json cannot be written"):
            write_report(Report("second", 0, {}, {}), report)
        with pytest.raises(ResourceExhausted, match="plot.png cannot be written"):
            write_plot(plot, "second", panels)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (report.read_bytes(), plot.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [plot, report]


def test_a_report_takes_the_place_of_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_report(Report("x", 0, {}, {}), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text())["benchmark"] == "x"
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb") as pipe:
        write_report(Report("x", 0, {}, {}), tmp_path / "pipe")
        assert pipe.readline() == b"{\n"
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(("batches", "max_nodes", "most"), [((1, 257), 64, 256), ((129,), 1024, 128)])
def test_batches_that_no_service_takes_are_refused_at_once(batches: tuple[int, ...], max_nodes: int, most: int) -> None:
    """They were when all else had been measured, and it was lost."""
    settings = {"batches": batches, "max_nodes": max_nodes}
    RetrievalOptions(Path("store"), Path("work"), **settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=f"through gRPC, with {max_nodes} nodes a draft, each must be {most} or"):
        RetrievalOptions(Path("store"), Path("work"), grpc=True, **settings)  # type: ignore[arg-type]


def test_plot_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = [Panel("speed", "s", ["a", "b"], {"x": [1.0, None], "y": [2.0, 3000.0]}, logarithmic=True)] * 3
    write_plot(tmp_path / "plot.png", "title", panels)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Unsupported, match=r"matplotlib.*pip install 'suffolk\[bench\]'"):
        require_plots()


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_of_both_styles(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "question"}]
    write_rows(tmp_path / "b.jsonl", [{"id": "x", "set": "code", "messages": messages, "prefill": "def f("}])
    write_rows(tmp_path / "a.jsonl", [{"prompt": "once"}, {"text": "upon"}])
    found = load_prompts([tmp_path], "both", None, 0)
    assert [(each.name, each.group, each.text) for each in found] == [
        ("a.jsonl:1", "a", "once"),
        ("a.jsonl:2", "a", "upon"),
        ("x", "code, chat", ""),
        ("x", "code, prefill", "def f("),
    ]
    assert [each.group for each in load_prompts([tmp_path / "b.jsonl"], "prefill", None, 0)] == ["code, prefill"]


def test_prompt_limit_picks_by_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", [{"prompt": str(number)} for number in range(50)])
    texts = [[int(each.text) for each in load_prompts([path], "chat", 5, seed)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] == sorted(texts[0])
    assert texts[0] != texts[2]
    assert len(set(texts[0])) == 5


def test_bad_prompts_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no .jsonl file"):
        load_prompts([tmp_path], "chat", None, 0)
    with pytest.raises(NotFound, match="missing.jsonl"):
        load_prompts([tmp_path / "missing.jsonl"], "chat", None, 0)
    with pytest.raises(InvalidArgument, match="line 1: no 'messages' and no 'prompt'"):
        load_prompts([write_rows(tmp_path / "a.jsonl", [{"question": "x"}])], "chat", None, 0)
    (tmp_path / "b.jsonl").write_text("\n{oops\n")
    with pytest.raises(InvalidArgument, match="b.jsonl line 2"):
        load_prompts([tmp_path / "b.jsonl"], "chat", None, 0)


def test_texts_of_rows_and_files(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "a.jsonl", [{"text": "one"}, {"messages": [{"role": "user", "content": "two"}]}])
    assert read_texts(rows) == ["one", "two\n"]
    (tmp_path / "b.py").write_text("three\nfour\n")
    assert read_texts(tmp_path / "b.py") == ["three\nfour\n"]
    with pytest.raises(InvalidArgument, match="line 1 has no 'text'"):
        read_texts(write_rows(tmp_path / "c.jsonl", [{"x": 1}]))


def run_row(drafter: str, tokens: int, steps: int, seconds: float, **changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "group": "code",
        "drafter": drafter,
        "tokens": tokens,
        "steps": steps,
        "decode_seconds": seconds,
        "tokens_per_second": (tokens - 1) / seconds,
        "tokens_compared": tokens,
        "seconds": dict.fromkeys(PARTS, 0.0) | {"prefill": 1.0, "draft": 0.1 * seconds, "wait": 0.2 * seconds},
        "accepted_by_source": {"3": 2, "1": 1} if drafter != "none" else {},
        "nodes_verified": 2 * steps,
        "missed": {},
        "identical": True,
        "speed_up": 1.0,
    }
    return row | changes


def test_summary_of_a_prompt_set() -> None:
    runs = [
        run_row("none", 11, 10, 10.0),
        run_row("none", 21, 20, 20.0),
        run_row("hybrid", 11, 5, 5.0, speed_up=2.0),
        run_row("hybrid", 21, 10, 20.0, identical=False, near_tie_gap=0.01),
    ]
    found = summarize(runs, ("none", "hybrid"))
    assert list(found) == ["code"]
    hybrid = found["code"]["hybrid"]
    assert hybrid["speed_up_median"] == 1.5
    assert hybrid["speed_up_least"] == 1.0
    assert hybrid["speed_up_total_time"] == pytest.approx(30 / 25)
    assert hybrid["speed_up_with_prompt_pass"] == pytest.approx(32 / 27)
    assert hybrid["mean_generated_length"] == 2.0
    assert hybrid["accepted_by_source"] == {"datastore+prompt-lookup": 4, "datastore": 2}
    assert hybrid["draft_time_share"] == pytest.approx(0.3)
    assert (hybrid["identical"], hybrid["runs"], hybrid["largest_near_tie_gap"]) == (1, 2, 0.01)
    assert hybrid["disagreements_per_100k_tokens"] == 1e5 / 32
    assert hybrid["milliseconds_a_step"]["draft"] == pytest.approx(2500 / 15)
    assert found["code"]["none"]["mean_generated_length"] == 1.0


def test_first_tokens_of_stores_that_begin_alike_are_not_mixed_up(tmp_path: Path) -> None:
    """Only the first segment told the cached stores apart."""
    for name, second in (("a", [[4, 5]]), ("b", [[6, 7]])):
        with make_store(tmp_path / name, [[[1, 2, 3]], second], vocab_size=9) as store:
            first = first_tokens(store, 5, tmp_path / "work")
        with open_datastore(first) as part:
            assert [document.tokens.tolist() for document in part.documents()] == [[1, 2, 3], second[0]]


def test_an_empty_store_is_not_measured(tmp_path: Path) -> None:
    with (
        make_store(tmp_path / "store", [[[]]], vocab_size=9) as store,
        pytest.raises(InvalidArgument, match="nothing to measure"),
    ):
        join_documents(store)


def test_the_demonstration_says_that_its_machine_was_busy() -> None:
    def runs(*rates: float) -> list[dict[str, object]]:
        drafted = {"drafter": "hybrid", "tokens_per_second": 99.0}
        return [drafted, *({"drafter": "none", "tokens_per_second": rate} for rate in rates)]

    assert busy(runs(8.0, 16.0, 0.0)) == []  # 0.0: an answer of one token, which has no time of its own
    assert busy(runs()) == []
    assert busy(runs(8.0, 11.0, 16.5)) == [
        "this machine was busy: plain decoding varied from 8.0 to 16.5 tokens/s; run it again when it is quiet"
    ]
