"""Verifies a step. It turns logits into the accepted drafted tokens and the next token of each request."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.decoding.engine.loop.drafter import Proposal, SampledChain, tree_of
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability, log_probabilities
from suffolk.serving.decoding.engine.sampling.row_sampling import likeliest
from suffolk.serving.decoding.engine.sampling.sampler import NO_TOKEN
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from suffolk.serving.decoding.engine.sampling.verification.rejection import sound_rows, verify_chain
from suffolk.serving.decoding.engine.sampling.verification.typical import typical_path
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

_SCORED_ROWS = 64
"""Rows of logits whose log-probabilities are computed at once. More rows would take more memory."""
_NO_NODES = np.empty(0, np.int64)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of verification for one request.

    Attributes:
        path: int64[k], the accepted nodes, from the root down.
        token: the token after the accepted nodes, sampled from the target.
        log_probabilities: one for each of the k + 1 tokens; empty unless ``logprobs`` is set.
    """

    path: npt.NDArray[np.int64]
    token: int
    log_probabilities: tuple[LogProbability, ...] = ()


@torch.inference_mode()
def verify(
    requests: Sequence[Request],
    proposals: Sequence[Proposal],
    logits: Sequence[torch.Tensor],
    whole: torch.Tensor | None = None,
) -> list[Outcome | SuffolkError | None]:
    """Accept drafted tokens and sample the next token. Returns each request's outcome, or the error of its sampling.

    A request with ``prompt_logprobs`` reads its prompt in chunks, without a proposal. Its outcome is None until the last chunk.

    ``logits``: for each request float[n + 1, vocab], after its text and after each of the n nodes of its proposal; for a chunk
    of a prompt with ``prompt_logprobs``, after each token of the chunk. ``whole``: ``logits`` as one tensor, if it exists;
    greedy requests are then sampled together.

    With ``match``, all requests that are greedy or sample from the whole distribution share one copy from device to host. Further
    copies are needed for top-k, top-p, min-p, masks, log-probabilities and the other verifications.
    """
    if whole is not None and all(each.sampler.is_plain_greedy and not each.reads_scored for each in requests):
        return [*_verify(requests, proposals, logits, [likeliest(whole)])]
    scored = [
        _score_prompt(request, rows) if request.reads_scored else []
        for request, rows in zip(requests, logits, strict=True)
    ]
    ready = [
        at for at, request in enumerate(requests) if not request.reads_scored or _ends_prompt(request, len(logits[at]))
    ]
    rows_of = {at: logits[at][-1:] if requests[at].reads_scored else logits[at] for at in ready}
    outcomes = _verify([requests[at] for at in ready], [proposals[at] for at in ready], list(rows_of.values()))
    found = dict(zip(ready, outcomes, strict=True))
    for request, scores in zip(requests, scored, strict=True):  # last: if memory runs out before, the step is repeated
        request.prompt_log_probabilities += scores
    return [found.get(at) for at in range(len(requests))]


def _ends_prompt(request: Request, rows: int) -> bool:
    """Whether a chunk of ``rows`` tokens is the end of the prompt of a request with ``prompt_logprobs``."""
    return len(request.prompt_log_probabilities) + rows == request.stats.prompt_tokens


def _score_prompt(request: Request, logits: torch.Tensor) -> list[LogProbability]:
    """The log-probability of the prompt's next token after each token of a chunk; none after the prompt's last token."""
    begin = len(request.prompt_log_probabilities) + 1
    tokens = torch.from_numpy(request.tokens[begin : begin + len(logits)].astype(np.int64))
    tokens = tokens[: request.stats.prompt_tokens - begin].to(logits.device)
    parts = zip(torch.split(logits[: len(tokens)], _SCORED_ROWS), torch.split(tokens, _SCORED_ROWS), strict=True)
    alternatives = request.settings.prompt_logprobs or 0
    return [each for rows, part in parts for each in log_probabilities(rows, part, alternatives)]


def _verify(
    requests: Sequence[Request],
    proposals: Sequence[Proposal],
    logits: Sequence[torch.Tensor],
    sampled: list[torch.Tensor] | None = None,
) -> list[Outcome | SuffolkError]:
    """``sampled``: the tokens of all rows, if they are sampled already."""
    failed: dict[int, SuffolkError] = {}
    if sampled is None:
        sampled = []
        for at, (request, proposal, rows) in enumerate(zip(requests, proposals, logits, strict=True)):
            try:
                sampled.append(_sample(request, proposal, rows))
            except SuffolkError as error:
                failed[at] = error
                sampled.append(torch.zeros(len(rows), dtype=torch.int64, device=rows.device))
    if not sampled:
        return []
    host = np.asarray(torch.cat(sampled).cpu().numpy(), np.int64)
    outcomes: list[Outcome | SuffolkError] = []
    begin = 0
    for at, (request, proposal, rows) in enumerate(zip(requests, proposals, logits, strict=True)):
        tokens = host[begin : begin + len(rows)]
        begin += len(rows)
        try:
            outcomes.append(failed[at] if at in failed else _verify_one(request, proposal, rows, tokens))
        except SuffolkError as error:
            outcomes.append(error)
    return outcomes


def _sample(request: Request, proposal: Proposal, rows: torch.Tensor) -> torch.Tensor:
    if request.sampler.is_plain_greedy:
        return likeliest(rows)
    return request.sampler.sample(rows, request.contexts(tree_of(proposal)))


def _verify_one(request: Request, proposal: Proposal, rows: torch.Tensor, sampled: npt.NDArray[np.int64]) -> Outcome:
    tree, settings = tree_of(proposal), request.settings
    if not len(tree):
        return _outcome(request, proposal, rows, sampled, _NO_NODES, int(sampled[0]))
    if settings.verification == "typical":
        distributions = request.sampler.probabilities(rows, request.contexts(tree_of(proposal)))
        allowed = _above_floor(tree, rows, settings.typical_floor) if settings.typical_floor else None
        path = typical_path(tree.tokens, tree.parents, distributions, settings.epsilon, settings.delta, allowed)
    elif settings.verification == "rejection" and isinstance(proposal, SampledChain):
        return _accept_chain(request, proposal, rows, sampled)
    else:
        path = accept(tree.tokens, tree.parents, sampled)
    return _outcome(request, proposal, rows, sampled, path, int(sampled[path[-1] + 1 if len(path) else 0]))


def _above_floor(tree: DraftTree, rows: torch.Tensor, floor: float) -> npt.NDArray[np.bool_]:
    """bool[n], the nodes of probability ``floor`` or more. Probabilities are the softmax of ``rows``, the unprocessed
    logits."""
    after = rows[torch.from_numpy(tree.parents.astype(np.int64) + 1).to(rows.device)]
    tokens = torch.from_numpy(tree.tokens.astype(np.int64)).to(rows.device)
    likely = after.double().softmax(-1).gather(1, tokens[:, None])[:, 0]
    return np.asarray((likely >= floor).cpu().numpy(), np.bool_)


def _accept_chain(request: Request, chain: SampledChain, rows: torch.Tensor, sampled: npt.NDArray[np.int64]) -> Outcome:
    distributions = request.sampler.probabilities(rows, request.contexts(chain.tree))
    forbidden = ~(distributions.sum(-1) > 0)  # in these rows no token is allowed, or the logits are NaN
    forbidden[0] = False
    distributions[forbidden] = 0.0
    distributions[forbidden, 0] = 1.0  # any distribution, because no token is accepted from here on
    sampled = np.where(forbidden.cpu().numpy(), NO_TOKEN, sampled)
    positions = torch.arange(request.length, request.length + len(rows), device=rows.device)
    coins, draws = request.uniforms.coins(positions), request.uniforms.draws(positions)
    try:
        verified = verify_chain(
            chain.tree.tokens, chain.distributions.to(distributions.device), distributions, coins, draws
        )
    except USER_CODE_ERRORS as error:  # a row is not a distribution: the draft ends before this row
        reason = type(error).__name__
        if not request.stats.draft_failures[reason]:
            log.warning("drafter %s: %s; continuing without that part of its draft", request.drafter, first_line(error))
        request.stats.draft_failures[reason] += 1
        sound = sound_rows(chain.distributions, distributions.shape[1]) if isinstance(error, InvalidArgument) else 0
        if 0 < sound < len(chain.tree):  # keep the valid rows: verifying a token must not depend on later ones
            head = SampledChain(chain.tree.head(sound), chain.distributions[:sound])
            return _accept_chain(request, head, rows[: sound + 1], sampled[: sound + 1])
        return _outcome(request, chain, rows, sampled, np.empty(0, np.int64), int(sampled[0]))
    # if no token is allowed after a prefix, the drafted token after it is not accepted
    dead = np.flatnonzero(sampled[: verified.accepted] == NO_TOKEN)
    accepted = int(dead[0]) if len(dead) else verified.accepted
    return _outcome(request, chain, rows, sampled, np.arange(accepted), verified.token)


def _outcome(
    request: Request,
    proposal: Proposal,
    rows: torch.Tensor,
    sampled: npt.NDArray[np.int64],
    path: npt.NDArray[np.int64],
    token: int,
) -> Outcome:
    if len(path) and sampled[path[-1] + 1] == NO_TOKEN:  # no token may follow: the last accepted token ends the step
        path, token = path[:-1], int(tree_of(proposal).tokens[path[-1]])
    if request.settings.logprobs is None:
        return Outcome(path, token)
    tokens = torch.from_numpy(np.append(tree_of(proposal).tokens[path], token).astype(np.int64)).to(rows.device)
    kept = torch.from_numpy(np.append(0, path + 1)).to(rows.device)
    return Outcome(path, token, tuple(log_probabilities(rows[kept], tokens, request.settings.logprobs)))
