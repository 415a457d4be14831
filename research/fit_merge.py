"""Fits the pooling of several sources' probabilities: the constants of csrc/drafting/merge.cc, from recorded answers.

The hybrid of prompt lookup, a datastore and networks drafts along the answers. The evidence is each source's
probability of each next token. Part of the evidence is repeated with random subsets of the sources. Each half of the
answers is fitted, and the fit is tested on the other half. The printed constants are fitted to all answers. Record
answers to tuning prompts (research.tuning_prompts, research.record_answers).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from research.command import add_evidence, command_parser, run_command
from research.drafter_options import add_drafter_options, read_drafter_config
from research.fit_priors import halves_of
from research.merge_evidence import TokenEvidence, WatchedHybrid, some_sources
from suffolk.benchmarks.decode.options import LIMITS
from suffolk.benchmarks.hybrid.along_recordings import AlongRecordings
from suffolk.benchmarks.progress import part_progress
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.load import load_drafters
from suffolk.serving.drafters.registry import BUILT_IN, source_name
from suffolk.serving.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.model.target import Target
from suffolk.serving.replay.read import read_recordings
from suffolk.serving.replay.recording import Recording
from suffolk.serving.replay.replayer import SPARE
from suffolk.serving.transport.limits import MAX_THREADS, check_range

_ENTRIES = sorted((entry for entry in BUILT_IN.values() if entry.source), key=lambda entry: entry.source)
SOURCES = [entry.source for entry in _ENTRIES]
MOST = 128
"""Most proposed tokens after one node that count: the likeliest ones."""
LEAST_REST, LEAST_CHANCE = 0.01, 1e-5
"""Same values as in csrc/drafting/merge.cc."""


class Pooling(torch.nn.Module):
    """The pooling of csrc/drafting/merge.h, with its constants as parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.log_weight = torch.nn.Parameter(torch.zeros(len(SOURCES)))
        self.unlisted = torch.nn.Parameter(torch.full((len(SOURCES),), -5.0))
        self.no_child = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, chances: torch.Tensor) -> torch.Tensor:
        """Return float[n, tokens + 1], unnormalised log-probabilities of each token, and of none of them.

        ``chances``: float[n, tokens, sources], -1 if a source does not propose a token. A source that proposes no token
        is ignored.
        """
        listed = chances >= 0
        proposes, exists = listed.any(1), listed.any(2)
        expected = chances.clamp(min=0).sum(1)
        counted = expected.clamp(LEAST_CHANCE, 1.0)
        doubts = torch.tensor([entry.pool_weight.doubt for entry in _ENTRIES])
        strength = self.log_weight.exp() * counted / (counted + doubts) * proposes
        number = strength.sum(1) / strength.amax(1)
        weight = strength / strength.sum(1, keepdim=True) * number[:, None].sqrt()
        rest = (1 - expected).clamp(min=LEAST_REST).log()
        logs = torch.where(listed, chances.clamp(min=LEAST_CHANCE).log(), (rest + self.unlisted)[:, None])
        found = (logs * weight[:, None]).sum(2).masked_fill(~exists, -torch.inf)
        no_child = (weight * rest).sum(1) - self.no_child * number.log()
        return torch.cat([found, no_child[:, None]], 1)


def pack(evidence: Sequence[TokenEvidence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (float[n, MOST, sources], int64[n]): the input of ``Pooling``, and the place of the actual token.

    The place is ``MOST`` if no source proposed the token.
    """
    chances, came = torch.full((len(evidence), MOST, len(SOURCES)), -1.0), torch.full((len(evidence),), MOST)
    for row, each in enumerate(evidence):
        best: dict[int, float] = {}
        for probs in each.by_source.values():
            for token, chance in probs.items():
                best[token] = max(best.get(token, 0.0), chance)
        places = {token: place for place, token in enumerate(sorted(best, key=lambda token: -best[token])[:MOST])}
        for source, probs in each.by_source.items():
            for token, chance in probs.items():
                if token in places:
                    chances[row, places[token], SOURCES.index(source)] = chance
        came[row] = places.get(each.token, MOST)
    return chances, came


def loss(pooling: Pooling, evidence: Sequence[TokenEvidence]) -> float:
    """Mean loss in nats a token."""
    chances, came = pack(evidence)
    with torch.no_grad():
        return float(F.cross_entropy(pooling(chances), came))


def fit(evidence: Sequence[TokenEvidence]) -> Pooling:
    """Fit the pooling that makes ``evidence`` likeliest. Raises InvalidArgument if no token has two sources."""
    several = [each for each in evidence if len(each.by_source) > 1]
    if not several:
        raise InvalidArgument(
            "two sources never proposed tokens at the same place; give more answers, or another source"
        )
    chances, came = pack(several)
    pooling = Pooling()
    search = torch.optim.LBFGS(pooling.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        search.zero_grad()
        found = F.cross_entropy(pooling(chances), came)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(step)  # type: ignore[no-untyped-call]
    return pooling


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--threads", args.threads, 1, MAX_THREADS)
    recordings = [each for each in read_recordings(args.recording) if len(each.generated) > 1]
    if args.limit is not None:
        check_range("--limit", args.limit, 2, len(recordings) or 2)
        recordings = recordings[:: len(recordings) // args.limit][: args.limit]
    if len(recordings) < 2:
        raise InvalidArgument("fewer than two answers of two tokens or more; record more")
    evidence = _gather(args, recordings)
    halves = halves_of(recordings)
    parts = [
        [each for own, found in zip(halves, evidence, strict=True) if own == half for each in found] for half in (0, 1)
    ]
    for half in (0, 1):
        judged = [each for each in parts[1 - half] if len(each.by_source) > 1]
        before, after = loss(Pooling(), judged), loss(fit(some_sources(parts[half])), judged)
        print(
            f"fitted to half {half + 1}, tested on {len(judged):,} tokens: {before:.4f} nats before the fit, "
            f"{after:.4f} after"
        )
    whole = fit(some_sources([each for part in parts for each in part]))
    seen = {source for found in evidence for each in found for source in each.by_source}
    most = max(float(whole.log_weight[place].detach()) for place, source in enumerate(SOURCES) if source in seen)
    for place, source in enumerate(SOURCES):
        if source in seen:
            weight = float((whole.log_weight[place] - most).exp().detach())
            print(f"{source_name(source)}: weight {weight:.2f}, unlisted {float(whole.unlisted[place].detach()):.1f}")
    print(f"no_child {float(whole.no_child.detach()):.2f}")
    return 0


def _gather(args: argparse.Namespace, recordings: Sequence[Recording]) -> list[list[TokenEvidence]]:
    """Collect the evidence of each of ``recordings``."""
    torch.set_num_threads(args.threads)
    capacity = max(len(each.prompt) + len(each.generated) for each in recordings) + args.nodes + SPARE
    with open_datastore(args.datastore) as store:  # before a model is loaded
        target = Target.load(args.model, args.dtype)
        networks = load_drafters(target, read_drafter_config(args), 1, capacity, [store], LIMITS)
        texts: list[RetrievalSource] = [
            PromptLookupDrafter(target.vocab_size, LIMITS),
            DatastoreDrafter(store, target.vocab_size, LIMITS),
        ]
        hybrid = WatchedHybrid(texts, networks)
        along = AlongRecordings(target, {hybrid.name: hybrid}, args.nodes, capacity)
        found = []
        with part_progress(len(recordings), "answers") as done:
            for number, recording in enumerate(recordings, 1):
                along.replay(recording)
                found.append(hybrid.take())
                done(number)
        hybrid.close()
    return found


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "fit_merge", __doc__, "--model MODEL --head HEAD --recording tuning.jsonl --datastore STORE"
    )
    add_evidence(parser)
    add = parser.add_argument
    add(
        "--model",
        required=True,
        help="model that generated the answers: folder in the Hugging Face layout, or hub name",
    )
    add_drafter_options(parser, without=["datastore"])
    add("--limit", type=int, metavar="N", help="number of answers to use, evenly spread (default: all)")
    add("--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)")
    add("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
