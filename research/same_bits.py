"""Counts rows whose logits have the same bits as in decoding one row at a time.

A text is read in other ways: chains, trees with a sibling at each level, batches, and a prompt in small chunks. For each way
that differs, the first operation whose result differs is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from research.command import command_parser, run_command
from suffolk.datastore.checks import check_range
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.same_bits import EXACT
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import DTYPES
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out

EXAMPLES = ("--model MODEL --text docs/benchmarks.md --dtype bfloat16",)
BATCH = 8
Ids = npt.NDArray[np.int64]
Results = list[tuple[str, torch.Tensor]]


@dataclass(slots=True)
class Recorder:
    """Records the results of all operations of a pass for one row: the modules without children, and attention."""

    row: int = -1
    results: Results | None = None

    def attach(self, model: torch.nn.Module) -> None:
        for name, module in model.named_modules():
            if not list(module.children()) or name.endswith("attn"):
                module.register_forward_hook(self._hook(name))

    def _hook(self, name: str) -> Any:
        def record(module: torch.nn.Module, inputs: object, output: object) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if self.results is not None and isinstance(tensor, torch.Tensor):
                rows = tensor if tensor.ndim < 3 else tensor[0]
                self.results.append((name, rows[self.row].clone()))

        return record


@dataclass(frozen=True, slots=True)
class Study:
    """One text: ``prompt`` tokens are read first, the others are compared."""

    target: Target
    tokens: Ids
    prompt: int
    recorder: Recorder

    def cache(self, chunk: int, slots: int = 1) -> KVCache:
        """A cache with the prompt in all slots. Slot 0 read it in chunks of ``chunk``."""
        cache = self.target.new_cache(slots, len(self.tokens) + 64)
        for slot in range(slots):
            for begin in range(0, self.prompt, chunk):
                part = self.tokens[begin : min(begin + chunk, self.prompt)]
                self.target.forward(cache, [slot], [chain(part)], [1])
                cache.lengths[slot] += len(part)
        return cache

    def one_by_one(self, chunk: int = 512) -> torch.Tensor:
        """[compared rows, vocab], the logits of passes of one row."""
        cache = self.cache(chunk)
        found = []
        for token in self.tokens[self.prompt :]:
            found.append(self.target.forward(cache, [0], [chain(np.array([token]))], [1]).logits)
            cache.lengths[0] += 1
        return torch.cat(found)

    def chains(self, size: int) -> torch.Tensor:
        cache = self.cache(512)
        found = []
        for begin in range(self.prompt, len(self.tokens), size):
            part = self.tokens[begin : begin + size]
            found.append(self.target.forward(cache, [0], [chain(part)], [len(part)]).logits)
            cache.lengths[0] += len(part)
        return torch.cat(found)

    def trees(self, depth: int, slots: int = 1) -> torch.Tensor:
        """The path has a sibling before it at each level; the last of ``slots`` requests is compared."""
        cache = self.cache(512, slots)
        found = []
        for begin in range(self.prompt, len(self.tokens), depth + 1):
            part = self.tokens[begin : begin + depth + 1]
            layout, path = tree_of(part)
            logits = self.target.forward(cache, list(range(slots)), [layout] * slots, [len(layout)] * slots).logits
            found.append(logits[-len(layout) :][path])
            cache.keep(list(range(slots)), [path] * slots)
        return torch.cat(found)

    def batches(self) -> torch.Tensor:
        """Requests of one row each; the last is compared."""
        cache = self.cache(512, BATCH)
        found = []
        for token in self.tokens[self.prompt :]:
            layouts = [chain(np.array([token]))] * BATCH
            found.append(self.target.forward(cache, list(range(BATCH)), layouts, [1] * BATCH).logits[-1:])
            cache.lengths += 1
        return torch.cat(found)

    def first_difference(self, layout: TreeLayout, row: int) -> str:
        """The first operation whose result for a row of ``layout`` differs from that in passes of one row; "" for none."""
        recorder, cache = self.recorder, self.cache(512)
        recorder.row, recorder.results = row, (together := Results())
        self.target.forward(cache, [0], [layout], [len(layout)])
        recorder.row = -1
        for token in layout.tokens[rows_seen(layout, row)]:
            recorder.results = alone = Results()
            self.target.forward(cache, [0], [chain(np.array([token]))], [1])
            cache.lengths[0] += 1
        recorder.results = None
        for (name, one), (_, other) in zip(together, alone, strict=True):
            if not torch.equal(one, other):
                return name
        return ""


def rows_seen(layout: TreeLayout, row: int) -> npt.NDArray[np.bool_]:
    """bool[rows], the ancestors of a row and the row itself."""
    seen: npt.NDArray[np.bool_] = np.arange(len(layout)) <= row if layout.visible is None else layout.visible[row]
    return seen


def tree_of(part: Ids) -> tuple[TreeLayout, Ids]:
    """The rows of a path with a sibling before each node, and the path's rows."""
    tokens, parents, path = [], [], [0]
    for depth, token in enumerate(part[1:]):
        parent = -1 if depth == 0 else 2 * depth - 1
        tokens += [int(token) ^ 1, int(token)]
        parents += [parent, parent]
        path.append(len(tokens))
    size = len(tokens)
    tree = DraftTree(
        np.array(tokens, np.int32), np.array(parents, np.int32), np.ones(size, np.float32), np.ones(size, np.uint32)
    )
    return lay_out(int(part[0]), tree), np.array(path)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_range("--positions", options.positions, 8, 4096)
    check_range("--prompt", options.prompt, 1, 4096)
    target = Target.load(options.model, options.dtype, "cpu", exact=options.exact)
    ids = target.tokenizer.encode(options.text.read_text())[: options.prompt + options.positions]
    study = Study(target, np.asarray(ids, np.int64), len(ids) - options.positions, Recorder())
    study.recorder.attach(target.model)
    expected = study.one_by_one()
    part = study.tokens[study.prompt : study.prompt + 8]
    tree, path = tree_of(part)
    ways = {
        "chains of 8": (study.chains(8), study.first_difference(chain(part), 7)),
        "chains of 16": (study.chains(16), study.first_difference(chain(study.tokens[study.prompt :][:16]), 15)),
        "trees of depth 7": (study.trees(7), study.first_difference(tree, int(path[-1]))),
        "batches of 8": (study.batches(), ""),
        "8 trees": (study.trees(7, BATCH), ""),
        "chunks of 16": (study.one_by_one(16), ""),
        "chunks of 100": (study.one_by_one(100), ""),
    }
    rows = []
    for way, (found, name) in ways.items():
        same = int((found == expected).all(-1).sum())
        rows.append([way, f"{same} of {len(expected)}", f"{float((found - expected).abs().max()):.2g}", name])
    print(format_table(["way", "equal rows", "largest difference", "first operation that differs"], rows), flush=True)
    if options.json:
        write_json(options.json, rows)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("same_bits", __doc__, *EXAMPLES)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE", help="text whose tokens are read")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="auto: as stored")
    parser.add_argument("--exact", choices=EXACT, default="auto", help="as of Target.load (default: auto)")
    parser.add_argument("--prompt", type=int, default=300, metavar="N", help="tokens of the prompt")
    parser.add_argument("--positions", type=int, default=48, metavar="N", help="tokens after it, which are compared")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
