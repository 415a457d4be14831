"""From the logits of a step to what each of its requests accepts and draws."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.engine.loop.drafter import Proposal, SampledChain, tree_of
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.user_code_errors import USER_CODE_ERRORS, first_line
from suffolk.serving.engine.model.row_contexts import RowContexts
from suffolk.serving.engine.sampling.log_probabilities import LogProbability, log_probabilities
from suffolk.serving.engine.sampling.sampler import NO_TOKEN, likeliest
from suffolk.serving.engine.sampling.verification import accept, sound_rows, typical_path, verify_chain

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request gets from a step.

    Attributes:
        path: int64[k], the accepted nodes from the top down.
        token: the token behind them, the target's own.
        log_probabilities: of the k + 1 tokens, where the request asked for them.
    """

    path: npt.NDArray[np.int64]
    token: int
    log_probabilities: tuple[LogProbability, ...] = ()


@torch.inference_mode()
def verify(
    requests: Sequence[Request], proposals: Sequence[Proposal], logits: Sequence[torch.Tensor]
) -> list[Outcome | SuffolkError]:
    """One outcome per request, or why its own settings or functions made it fail.

    ``logits``: for each request float[n + 1, vocab], behind its text and behind each of the n nodes of its proposal. One copy
    from device to host for all requests that draw greedily or from the whole law under ``match``; requests with top-k, top-p,
    min-p, masks, log-probabilities or another verification ask the device more.
    """
    drawn: list[torch.Tensor] = []
    failed: dict[int, SuffolkError] = {}
    for at, (request, proposal, rows) in enumerate(zip(requests, proposals, logits, strict=True)):
        try:
            drawn.append(_draw(request, proposal, rows))
        except SuffolkError as error:
            failed[at] = error
            drawn.append(torch.zeros(len(rows), dtype=torch.int64, device=rows.device))
    if not drawn:
        return []
    host = np.asarray(torch.cat(drawn).cpu().numpy(), np.int64)
    split = np.split(host, np.cumsum([len(rows) for rows in logits])[:-1])
    outcomes: list[Outcome | SuffolkError] = []
    for at, (request, proposal, rows, tokens) in enumerate(zip(requests, proposals, logits, split, strict=True)):
        try:
            outcomes.append(failed[at] if at in failed else _judge(request, proposal, rows, tokens))
        except SuffolkError as error:
            outcomes.append(error)
    return outcomes


def _draw(request: Request, proposal: Proposal, rows: torch.Tensor) -> torch.Tensor:
    if request.sampler.is_plain_greedy:
        return likeliest(rows)
    return request.sampler.draw(rows, _contexts(request, proposal))


def _judge(request: Request, proposal: Proposal, rows: torch.Tensor, drawn: npt.NDArray[np.int64]) -> Outcome:
    tree, settings = tree_of(proposal), request.settings
    if settings.verification == "typical" and len(tree):
        laws = request.sampler.probabilities(rows, _contexts(request, proposal))
        path = typical_path(tree.tokens, tree.parents, laws, settings.epsilon, settings.delta)
    elif settings.verification == "rejection" and isinstance(proposal, SampledChain):
        return _reject(request, proposal, rows, drawn)
    else:
        path = accept(tree.tokens, tree.parents, drawn)
    return _outcome(request, proposal, rows, drawn, path, int(drawn[path[-1] + 1 if len(path) else 0]))


def _reject(request: Request, chain: SampledChain, rows: torch.Tensor, drawn: npt.NDArray[np.int64]) -> Outcome:
    laws = request.sampler.probabilities(rows, _contexts(request, chain))
    lawless = ~(laws.sum(-1) > 0)  # no token is allowed there, or the target gave no numbers
    lawless[0] = False
    laws[lawless] = 0.0
    laws[lawless, 0] = 1.0  # any law: what follows is not drawn there
    drawn = np.where(lawless.cpu().numpy(), NO_TOKEN, drawn)
    positions = torch.arange(request.length, request.length + len(rows), device=rows.device)
    coins, draws = request.uniforms.coins(positions), request.uniforms.draws(positions)
    try:
        verdict = verify_chain(chain.tree.tokens, chain.law.to(laws.device), laws, coins, draws)
    except USER_CODE_ERRORS as error:  # a row of the drafter's law is no law: its draft ends before it
        reason = type(error).__name__
        if not request.stats.missed[reason]:
            log.warning("drafter %s: %s; going on without that part of its draft", request.drafter, first_line(error))
        request.stats.missed[reason] += 1
        sound = sound_rows(chain.law, laws.shape[1]) if isinstance(error, InvalidArgument) else 0
        if 0 < sound < len(chain.tree):  # to drop these too would be to choose among tokens by what stands behind them
            head = SampledChain(chain.tree.head(sound), chain.law[:sound])
            return _reject(request, head, rows[: sound + 1], drawn[: sound + 1])
        return _outcome(request, chain, rows, drawn, np.empty(0, np.int64), int(drawn[0]))
    dead = np.flatnonzero(drawn[: verdict.accepted] == NO_TOKEN)  # where no token is allowed none is accepted
    accepted = int(dead[0]) if len(dead) else verdict.accepted
    return _outcome(request, chain, rows, drawn, np.arange(accepted), verdict.token)


def _outcome(
    request: Request,
    proposal: Proposal,
    rows: torch.Tensor,
    drawn: npt.NDArray[np.int64],
    path: npt.NDArray[np.int64],
    token: int,
) -> Outcome:
    if len(path) and drawn[path[-1] + 1] == NO_TOKEN:  # nothing can follow its token: the step ends with it
        path, token = path[:-1], int(tree_of(proposal).tokens[path[-1]])
    if request.settings.logprobs is None:
        return Outcome(path, token)
    tokens = torch.from_numpy(np.append(tree_of(proposal).tokens[path], token).astype(np.int64)).to(rows.device)
    kept = torch.from_numpy(np.append(0, path + 1)).to(rows.device)
    return Outcome(path, token, tuple(log_probabilities(rows[kept], tokens, request.settings.logprobs)))


def _contexts(request: Request, proposal: Proposal) -> RowContexts:
    return RowContexts.of_tree(request.tokens[: request.length], request.stats.prompt_tokens, tree_of(proposal))
