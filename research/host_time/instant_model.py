"""A model whose passes are not computed, with logits along texts of Python's standard library, and the clock of its host."""

from __future__ import annotations

import contextlib
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, publish
from suffolk.datastore.segment import separator, token_dtype, write_segment
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.device_step import ON_HOST, UNDECIDED, DeviceStep, Drafts, Walks
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.passes import StaticPasses
from suffolk.serving.decoding.engine.model.row_attention import RowTables
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout
from suffolk.serving.decoding.engine.sampling.row_sampling import sample_rows
from suffolk.serving.decoding.engine.sampling.verification.match import accept

_SURE = 1000.0
"""The logit of a text's next token; other tokens have logit 0. It outweighs any noise of a sampler."""
VOCAB = 4096
_DEPTH = 64
_MODULES = 80
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
Ids = npt.NDArray[np.int32]
_Places = npt.NDArray[np.int64]


def tiny_target(vocab_size: int, tokenizer: Any) -> Target:
    """A random model of one small layer."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Target.wrap(LlamaForCausalLM(config), tokenizer, "instant", accelerate=False)


class InstantPasses:
    """Passes in place of the loop's ``Passes``: they load rows as captured passes do. Not thread-safe.

    Attributes:
        texts: int64[slots, longest], the whole text of the request in each slot.
    """

    has_steps = True

    def __init__(self, target: Target, cache: KVCache, costs: CostModel, clock: HostClock, most_rows: int) -> None:
        """``costs``: the times that passes are given. ``most_rows``: most rows of a pass."""
        self._static, self._cache, self._costs, self._clock = StaticPasses(target, cache, ()), cache, costs, clock
        self.texts = np.zeros((cache.slots, cache.capacity + 1), np.int64)
        self._logits = torch.zeros((most_rows, target.vocab_size))
        tables = RowTables(1, most_rows, 1, cache.spare, target.device, DeviceStep.extra(most_rows))
        self._ends = DeviceStep(tables, cache, sample_rows, [most_rows])

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> None:
        """Prepare the static pass."""
        if self._static.fits(layouts, wanted):
            self._static.prepare(slots, layouts)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """As ``Passes.forward``. A row at position p of a text is followed by its token p + 1, whatever its path is."""
        if self._static.fits(layouts, wanted):
            self._static.load(slots, layouts)
        lengths = self._cache.lengths[list(slots)]
        seconds = self._costs.time(sum(map(len, layouts)), len(slots), float(lengths.mean()))
        with self._clock.taking(seconds):
            return PassResult(self._follow(slots, layouts, wanted), None)

    def step(
        self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int], drafts: Drafts
    ) -> tuple[PassResult, Walks]:
        """As ``Passes.step``, without moving rows of the cache."""
        self._ends.load(drafts)
        read = self.forward(slots, layouts, wanted)
        with self._clock.taking(0.0):
            rows = [layout.tokens[len(layout) - count :] for layout, count in zip(layouts, wanted, strict=True)]
            columns = np.stack([np.concatenate(rows), drafts.parents, read.logits.numpy().argmax(-1)])
            ends = np.cumsum(drafts.counts)
            found = [_walk(*each) for each in np.split(columns, ends[:-1], axis=1)]
            counts, tokens, nodes = map(list, zip(*found, strict=True))
            return read, Walks((ends - drafts.counts).tolist(), counts, tokens, np.concatenate(nodes))

    def _follow(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> torch.Tensor:
        tokens: list[_Places] = []
        for slot, layout, count in zip(slots, layouts, wanted, strict=True):
            if count:
                tokens.append(self.texts[slot, int(self._cache.lengths[slot]) + layout.depths[-count:] + 1])
        if not tokens:
            return self._logits[:0]
        logits = self._logits[: sum(wanted)].zero_()
        return logits.scatter_(1, torch.from_numpy(np.concatenate(tokens))[:, None], _SURE)


def _walk(tokens: _Places, parents: _Places, sampled: _Places) -> tuple[int, int, _Places]:
    """The count, token and nodes of one request, as in ``Walks``."""
    nodes = np.zeros_like(tokens)
    if parents[0] == ON_HOST:
        return 0, UNDECIDED, nodes
    path = accept(tokens[1:].astype(np.int32), (parents[1:] - 1).astype(np.int32), sampled)
    nodes[1 : 1 + len(path)] = path
    return len(path), int(sampled[path[-1] + 1 if len(path) else 0]), nodes


@contextlib.contextmanager
def replaced_clock(now: Callable[[], float]) -> Iterator[None]:
    """Inside the block ``now`` replaces ``time.perf_counter`` in the whole process."""
    with patch.object(time, "perf_counter", now):
        yield


class HostClock:
    """Seconds of processor time of this process. A part can be given another time. Not thread-safe."""

    def __init__(self) -> None:
        self._given = 0.0  # seconds of all given times
        self._offset = 0.0

    def now(self) -> float:
        return time.process_time() + self._offset

    def worked(self) -> float:
        """The time without the parts that were given another time."""
        return self.now() - self._given

    @contextlib.contextmanager
    def taking(self, seconds: float) -> Iterator[None]:
        """Let the work of the block take ``seconds``, however long it takes."""
        begin = time.process_time()
        yield
        self._offset += seconds - (time.process_time() - begin)
        self._given += seconds


@dataclass(frozen=True)
class WordTexts:
    """Documents of word ids.

    Attributes:
        words: the words, by id. The last stands for all other words.
        documents: int32[n] each.
    """

    words: Sequence[str]
    documents: Sequence[Ids]

    @staticmethod
    def of_standard_library() -> WordTexts:
        """The first modules of Python's standard library that are one file, in order of their names."""
        folder = Path(sysconfig.get_path("stdlib"))
        texts = [_WORD.findall(path.read_text("utf-8", "replace")) for path in sorted(folder.glob("*.py"))[:_MODULES]]
        counts = Counter(word for text in texts for word in text)
        words = [word for word, _ in counts.most_common(VOCAB - 1)]
        ids = {word: number for number, word in enumerate(words)}
        documents = [np.array([ids.get(word, VOCAB - 1) for word in text], np.int32) for text in texts]
        return WordTexts([*words, "?"], documents)

    @cached_property
    def tokenizer(self) -> Any:
        """A transformers tokenizer of the words."""
        from tokenizers import Tokenizer, decoders, models
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(self.words)}, "?"))
        tokenizer.decoder = decoders.Fuse()
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer)  # type: ignore[no-untyped-call]

    def write_store(self, folder: Path, documents: Sequence[Ids]) -> Datastore:
        """Publish ``documents`` as a datastore in ``folder``, and open it."""
        (folder / SEGMENTS_NAME).mkdir(parents=True)
        kind = token_dtype(VOCAB)
        tokens = np.concatenate([np.append(each, separator(kind)) for each in documents]).astype(kind)
        table = DocumentTableWriter()
        table.extend((f"document {number}", {}) for number in range(len(documents)))
        path = folder / SEGMENTS_NAME / "000000.seg"
        entry = write_segment(path, tokens, vocab_size=VOCAB, order_depth=_DEPTH, documents=table.finish(), threads=1)
        publish(folder, Manifest(1, (entry,), VOCAB, _DEPTH, None, "2026-01-01T00:00:00Z"))
        return open_datastore(folder, threads=1)

    def excerpts(self, documents: Sequence[Ids], count: int, size: int, seed: int) -> list[Ids]:
        """``count`` random runs of ``size`` words of ``documents``."""
        random, long = np.random.default_rng(seed), [each for each in documents if len(each) >= size]
        chosen = [long[number] for number in random.integers(0, len(long), count).tolist()]
        begins = [int(random.integers(0, len(each) - size + 1)) for each in chosen]
        return [each[begin : begin + size] for each, begin in zip(chosen, begins, strict=True)]
