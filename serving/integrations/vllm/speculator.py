"""A drafter for vLLM's model runner V2 that keeps asynchronous scheduling. vLLM needs a patch (docs/design/vllm-patch.md)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.running_requests import Context
from suffolk.serving.integrations.vllm.proposer import read_config, require_version

_WIDTH = 64
"""Nodes of a request's tree, with the root. The tree must hold the tokens of the running pass and the drafts after them."""


class Speculator:
    """Drafts for the next pass from trees that were prepared during earlier passes. Never waits for a search.

    A thread reads the known tokens, and writes the tree of their likely continuations into a table. In each step the
    device follows this tree along the tokens of the last passes, and drafts the best path below. If the tree has no
    such path, for example after a late search, the draft repeats the last token. vLLM verifies the same number of
    drafted tokens in every row.

    The table is read while the thread may write it. A half-written row gives a bad draft; verification rejects it.
    """

    num_query_per_req = 1
    num_extra_query_per_req = 0
    supports_mm_inputs = False
    draft_logits = None

    def __init__(self, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        """``req_states``: vLLM's ``RequestState``. Raises Unsupported for an unsupported version of vLLM and for several ranks."""
        require_version()
        if vllm_config.parallel_config.world_size > 1:
            raise Unsupported("suffolk.vllm.Speculator drafts on one GPU; set tensor and pipeline parallelism to 1")
        model, most = vllm_config.model_config, int(vllm_config.speculative_config.num_speculative_tokens)
        tokenizer = None if model.skip_tokenizer_init else model.tokenizer
        self._core = DraftCore(read_config(vllm_config), model.get_vocab_size(), model.model, tokenizer)
        self._device, self._states, self._most = device, req_states, most
        rows, pinned = int(req_states.max_num_reqs), device.type == "cuda"
        self._lengths = torch.zeros(rows, dtype=torch.int64, pin_memory=pinned)
        self._tokens = torch.zeros(rows, _WIDTH, dtype=torch.int64, pin_memory=pinned)
        self._parents = torch.zeros(rows, _WIDTH, dtype=torch.int64, pin_memory=pinned)
        self._drafts = torch.zeros(rows, most, dtype=torch.int64, device=device)
        self._keys: set[str] = set()
        self._thread = ThreadPoolExecutor(1, "suffolk-speculator")
        self._search: Future[None] | None = None

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """Does nothing: there is no draft model."""

    def capture(self) -> None:
        """Does nothing."""

    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Any,
        aux_hidden_states: Any,
        num_sampled: Any,
        num_rejected: Any,
        last_sampled: torch.Tensor,
        *arguments: Any,
        dummy_run: bool = False,
        **named: Any,
    ) -> torch.Tensor:
        """int64[requests, num_speculative_tokens], on the device. Called before the pass has ended there."""
        if dummy_run:
            return self._drafts[: input_batch.num_reqs]
        rows = input_batch.idx_mapping.long()
        totals = self._states.total_len.gpu[rows].long()
        lengths, tokens, parents = (
            each.to(self._device, non_blocking=True)[rows] for each in (self._lengths, self._tokens, self._parents)
        )
        texts = self._states.all_token_ids.gpu
        drafts = follow(lengths, tokens, parents, texts, rows, totals, last_sampled.view(-1)[rows], self._most)
        if self._search is None or self._search.done():
            known = torch.empty(len(totals), dtype=torch.int64, pin_memory=self._lengths.is_pinned())
            known.copy_(totals, non_blocking=True)
            ended: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ended.record()
            places = dict(zip(input_batch.req_ids, input_batch.idx_mapping_np.tolist(), strict=False))
            self._search = self._thread.submit(self._prepare, ended, places, known, set(self._states.req_id_to_index))
        return drafts

    def stats(self) -> dict[str, float]:
        """See ``DraftCore.stats``."""
        return self._core.stats()

    def _prepare(self, ended: Any, places: Mapping[str, int], known: torch.Tensor, running: Set[str]) -> None:
        """Write the trees of the requests that decode.

        Args:
            ended: the event after which the texts are complete.
            places: row of each request of the pass. ``known``: int64[requests], the length of each text.
            running: all requests that have not ended.
        """
        ended.synchronize()
        texts = self._states.all_token_ids._uva_buf.np  # the device writes the texts into the host's memory
        contexts, rows = [], []
        for (key, row), length in zip(places.items(), known.tolist(), strict=True):
            if length > self._states.prefill_len.np[row]:
                prompt = int(self._states.prompt_len.np[row])
                contexts.append(Context(texts[row, :length].copy(), key, prompt_tokens=prompt))
                rows.append(row)
        for key in self._keys - running:
            self._core.finish(key)
        self._keys = (self._keys | places.keys()) & running
        if contexts:
            tokens, masks = self._core.draft_trees(contexts, _WIDTH)
            self._tokens[rows] = torch.from_numpy(tokens).long()
            self._parents[rows] = torch.from_numpy(parents_of(masks))
            self._lengths[rows] = torch.tensor([len(each.tokens) for each in contexts])


def parents_of(masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """int64[b, width], the parent of each node of ``masked_tree``; -1 for the root."""
    ancestors = np.tril(masks, -1)
    return np.asarray(np.where(ancestors, np.arange(masks.shape[-1]), -1).max(-1), np.int64)


def follow(
    lengths: torch.Tensor,
    tokens: torch.Tensor,
    parents: torch.Tensor,
    texts: torch.Tensor,
    rows: torch.Tensor,
    totals: torch.Tensor,
    last: torch.Tensor,
    most: int,
) -> torch.Tensor:
    """The best path of ``most`` tokens below the end of each text. A shorter path is filled up with the text's last
    token. Does not synchronise with the device.

    Args:
        lengths: int64[b], length of each text when its tree was made. The text's last token at that time is the root.
        tokens, parents: int64[b, width], the nodes; the first child of a node is its best.
        texts: int[rows of vLLM, n]; ``rows``: int64[b], the rows of the requests in it.
        totals: int64[b], the present length of each text; ``last``: int64[b], its last token.

    Returns:
        int64[b, most].
    """
    node = torch.where((lengths > 0) & (lengths <= totals), 0, -2)
    for step in range(2 * (most + 1)):  # two passes may end between a search and its use
        place = lengths + step
        token = texts[rows, place.clamp(max=texts.shape[1] - 1)].long()
        below = _first((parents == node[:, None]) & (tokens == token[:, None]))
        node = torch.where(place < totals, below, node)
    node = torch.where(totals - lengths > 2 * (most + 1), -2, node)
    drafts = []
    for _ in range(most):
        node = _first(parents == node[:, None])
        drafts.append(torch.where(node >= 0, tokens.gather(1, node.clamp(min=0)[:, None])[:, 0], last))
    return torch.stack(drafts, 1)


def _first(found: torch.Tensor) -> torch.Tensor:
    """int64[b], the first True of each row of ``found``; -2 if there is none. No node has the parent -2."""
    return torch.where(found.any(1), found.int().argmax(1), -2)
