"""Compares SGLang's n-gram corpus to a datastore in its place: call time, accepted tokens, memory.

SGLang's C++ sources come from its wheel and are compiled here. Both drafters return trees of the same width along
recorded answers, in the layout of SGLang's n-gram worker. Every step verifies the whole tree, as SGLang does. SGLang
inserts the running requests after each step. It can also load the corpus that the datastore holds.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pybind11

from research.command import command_parser, run_command
from suffolk.benchmarks.folder import first_tokens
from suffolk.benchmarks.processes import grown_memory, resident_memory
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Internal, NotFound
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.datastore.tree_paths import path_along
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.sglang.plugin import DatastoreCorpus

FOLDER = "sglang/kernels/jit/csrc/ngram_corpus/"
SOURCES = ("result", "trie", "suffix_automaton", "ngram")
BINDING = Path(__file__).with_name("sglang_binding.cc")
CAPACITY = 1_000_000
"""Most nodes of the trie: SGLang's default."""


class Corpus(Protocol):
    """The calls of SGLang's worker."""

    def batch_get(
        self, req_ids: Sequence[str], batch_tokens: Sequence[Sequence[int]], total_lens: Sequence[int]
    ) -> tuple[Any, Any]: ...

    def batch_put(self, batch_tokens: Sequence[Sequence[int]]) -> None: ...

    def synchronize(self) -> None: ...

    def erase_match_state(self, req_ids: Sequence[str]) -> None: ...


class SglangCorpus:
    """SGLang's trie, which also loads the corpus if ``tokens`` (int32[n]) are given."""

    def __init__(self, module: Any, depth: int, width: int, tokens: Any = ()) -> None:
        self._ngram = module.Ngram(CAPACITY, depth, width, width // 2 if len(tokens) else 0)
        self._numbers: dict[str, int] = {}
        if len(tokens):
            self._ngram.load(tokens)

    def batch_get(
        self, req_ids: Sequence[str], batch_tokens: Sequence[Sequence[int]], total_lens: Sequence[int]
    ) -> tuple[Any, Any]:
        states = [self._numbers.setdefault(each, len(self._numbers)) for each in req_ids]
        return self._ngram.batch_get(states, batch_tokens, total_lens)  # type: ignore[no-any-return]

    def batch_put(self, batch_tokens: Sequence[Sequence[int]]) -> None:
        self._ngram.batch_put(batch_tokens)

    def synchronize(self) -> None:
        self._ngram.synchronize()

    def erase_match_state(self, req_ids: Sequence[str]) -> None:
        self._ngram.erase([self._numbers[each] for each in req_ids])


def compile_sglang(wheel: Path, folder: Path) -> Any:
    """Compile and import the module of ``BINDING`` with the sources in ``wheel``. Raises NotFound, Internal."""
    try:
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                if name.startswith(FOLDER):
                    (folder / Path(name).name).write_bytes(files.read(name))
    except OSError as error:
        raise NotFound(f"{wheel}: {error.strerror}; fetch it with 'pip download --no-deps sglang==0.5.23'") from None
    target = folder / f"sglang_binding{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = [str(BINDING), *(str(folder / f"{name}.cpp") for name in SOURCES)]
    headers = [f"-I{each}" for each in (folder, pybind11.get_include(), sysconfig.get_path("include"))]
    done = subprocess.run(
        ["g++", "-std=c++20", "-O3", "-shared", "-fPIC", "-pthread", *headers, *sources, "-o", str(target)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Internal(f"{wheel}: its sources do not compile: {done.stderr.strip()[-400:]}")
    spec = importlib.util.spec_from_file_location("sglang_binding", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(corpus: Corpus, texts: Sequence[Recording], width: int, depth: int, batch: int) -> dict[str, float]:
    """Draft along ``texts``, ``batch`` at a time, with tails of ``depth`` tokens."""
    seconds: list[float] = []
    steps = tokens = 0
    for first in range(0, len(texts), batch):
        running = {str(first + at): each for at, each in enumerate(texts[first : first + batch])}
        done = dict.fromkeys(running, 1)  # the prompt pass gives the first token
        while running:
            keys = list(running)
            whole = [np.concatenate([each.prompt, each.generated[: done[key]]]) for key, each in running.items()]
            tails = [each[-depth:].tolist() for each in whole]
            begin = time.perf_counter()
            corpus.synchronize()
            found, masks = corpus.batch_get(keys, tails, [len(each) for each in whole])
            seconds.append(time.perf_counter() - begin)
            drafts, seen = np.reshape(found, (-1, width)), np.reshape(masks, (-1, width, width))
            for key, draft, mask in zip(keys, drafts, seen, strict=True):
                rest = running[key].generated[done[key] :]
                new = min(len(rest), accepted(draft, mask, rest) + 1)
                done[key] += new
                tokens, steps = tokens + new, steps + 1
                if done[key] == len(running[key].generated):
                    del running[key]
                    corpus.erase_match_state([key])
            corpus.batch_put(tails)
    return {
        "M": tokens / steps,
        "p50_us": float(np.median(seconds)) * 1e6,
        "p99_us": float(np.quantile(seconds, 0.99)) * 1e6,
    }


def accepted(draft: Any, mask: Any, rest: Any) -> int:
    """Count the leading tokens of ``rest`` that a tree contains.

    The mask gives each node's parent: the last earlier node that it attends to.
    """
    parents = [int(np.flatnonzero(mask[node, :node])[-1]) - 1 for node in range(1, len(draft))]
    return len(path_along(draft[1:], np.array(parents, np.int64), rest))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("sglang_trie", __doc__, "--wheel sglang-0.5.23-*.whl --datastore STORE --recording FILE")
    add = parser.add_argument
    add("--wheel", required=True, type=Path, metavar="FILE", help="SGLang's wheel")
    add("--datastore", required=True, type=Path, metavar="STORE", help="folder of a datastore")
    add("--recording", required=True, nargs="+", type=Path, metavar="FILE", help="recorded answers")
    add("--tokens", type=int, default=4_000_000, metavar="N", help="most tokens of the corpus (default: %(default)s)")
    add("--width", type=int, default=12, metavar="N", help="nodes of a tree (default: %(default)s)")
    add(
        "--depth",
        type=int,
        default=64,
        metavar="N",
        help="length of the context's tail, in tokens (default: %(default)s)",
    )
    add("--batch", type=int, nargs="+", default=[1, 8], metavar="N", help="batch sizes (default: 1 8)")
    add("--json", type=Path, metavar="FILE", help="results")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    texts = [each for each in read_recordings(args.recording) if len(each.generated) > 1]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        module = compile_sglang(args.wheel, Path(name))
        with open_datastore(args.datastore) as whole:
            path = first_tokens(whole, args.tokens, args.datastore.parent)
        with open_datastore(path) as store:
            corpus = np.concatenate([each.tokens for each in store.documents()]).astype(np.int32)
        core = IntegrationOptions(datastores=(str(path),))
        makers: dict[str, Callable[[], Corpus]] = {
            "sglang trie": lambda: SglangCorpus(module, args.depth, args.width),
            "sglang trie and corpus": lambda: SglangCorpus(module, args.depth, args.width, corpus),
            "datastore": lambda: DatastoreCorpus(DraftCore(core, texts[0].vocab_size, texts[0].model), args.width),
        }
        for batch in args.batch:
            for way, make in makers.items():
                before, begin = resident_memory(), time.perf_counter()
                made: Corpus = make()
                opened = time.perf_counter() - begin
                row = run(made, texts, args.width, args.depth, batch)
                grown = grown_memory(before)["anonymous"] / 1e6
                rows.append({"drafts from": way, "batch": batch, **row, "open s": opened, "memory MB": grown})
                print(rows[-1], file=sys.stderr, flush=True)
                del made
    print(format_table(list(rows[0]), [[*each.values()] for each in rows]))
    if args.json:
        write_json(args.json, {"machine": describe_machine(), "commit": commit(), "command": sys.argv, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
