"""Steps, statistics and prompts as messages. Used by both ends; knows no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import source_bits, source_name
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.loop.draft_counts import STAGES, DraftCounts
from suffolk.serving.engine.loop.prompt import Prompt, read_prompt
from suffolk.serving.engine.loop.stats import PARTS, GenerationStats
from suffolk.serving.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.proto import decode_pb2
from suffolk.serving.transport.tokens import pack_tokens, to_tokens, unpack_tokens


@dataclass(frozen=True, slots=True)
class Reply:
    """What one step of the target gave, as a client sees it.

    Attributes:
        tokens: one or more token ids.
        sources: for each, the ``Source`` bits of who drafted it; 0 for the target's own.
        pieces: (text, source bits) that became safe to show.
        finish: why the text ends with this reply: eos, stop, length or context; empty before the last.
        log_probabilities: of each token, if the request asked for them; else empty.
        stats: with the last reply alone.
    """

    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    pieces: tuple[tuple[str, int], ...]
    finish: str = ""
    log_probabilities: tuple[LogProbability, ...] = ()
    stats: GenerationStats | None = None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


def pack_prompt(prompt: Prompt) -> decode_pb2.GenerateRequest:
    """A request for ``prompt``. Raises InvalidArgument: it is none."""
    found = read_prompt(prompt)
    if isinstance(found, str):
        return decode_pb2.GenerateRequest(text=found)
    if isinstance(found, list):
        messages = [decode_pb2.ChatMessage(role=role, content=content) for role, content in found]
        return decode_pb2.GenerateRequest(chat=decode_pb2.Chat(messages=messages))
    return decode_pb2.GenerateRequest(token_ids=pack_tokens(to_tokens(found, "prompt")))


def pack_reply(reply: Reply) -> decode_pb2.GenerateReply:
    return decode_pb2.GenerateReply(
        tokens=pack_tokens(np.array(reply.tokens, np.int32)),
        sources=bytes(reply.sources),
        pieces=[decode_pb2.Piece(text=text, source=source) for text, source in reply.pieces],
        log_probabilities=[_pack_log_probability(each) for each in reply.log_probabilities],
        finish=reply.finish,
        stats=None if reply.stats is None else _pack_stats(reply.stats),
    )


def unpack_reply(message: decode_pb2.GenerateReply) -> Reply:
    """Raises InvalidArgument if the message is not sound."""
    tokens: npt.NDArray[np.int32] = unpack_tokens(message.tokens, "tokens")
    if len(tokens) != len(message.sources):
        raise InvalidArgument(f"sources has {len(message.sources)} entries for {len(tokens)} tokens")
    if len(message.log_probabilities) not in (0, len(tokens)):
        raise InvalidArgument(
            f"log_probabilities has {len(message.log_probabilities)} entries for {len(tokens)} tokens"
        )
    if bool(message.finish) != message.HasField("stats"):
        raise InvalidArgument("stats: they must come with the last reply and no other")
    ids = tuple(tokens.tolist())
    return Reply(
        tokens=ids,
        sources=tuple(message.sources),
        pieces=tuple((piece.text, piece.source) for piece in message.pieces),
        finish=message.finish,
        log_probabilities=tuple(map(_unpack_log_probability, ids, message.log_probabilities)),
        stats=_unpack_stats(message.stats, message.finish) if message.finish else None,
    )


def _pack_log_probability(each: LogProbability) -> decode_pb2.LogProbability:
    alternatives = np.array([token for token, _ in each.alternatives], np.int32)
    return decode_pb2.LogProbability(
        value=each.value, alternatives=pack_tokens(alternatives), values=[value for _, value in each.alternatives]
    )


def _unpack_log_probability(token: int, message: decode_pb2.LogProbability) -> LogProbability:
    tokens = unpack_tokens(message.alternatives, "alternatives").tolist()
    if len(tokens) != len(message.values):
        raise InvalidArgument(f"alternatives has {len(tokens)} tokens and {len(message.values)} values")
    return LogProbability(token, message.value, tuple(zip(tokens, message.values, strict=True)))


def _pack_stats(stats: GenerationStats) -> decode_pb2.GenerationStats:
    return decode_pb2.GenerationStats(
        prompt_tokens=stats.prompt_tokens,
        tokens=stats.tokens,
        steps=stats.steps,
        mean_generated_length=stats.mean_generated_length,
        proposals=stats.proposals,
        drafted=[decode_pb2.DraftCount(source=source_name(row.pop("source")), **row) for row in stats.drafted.rows()],
        missed=stats.missed,
        seconds=stats.seconds,
    )


def _unpack_stats(message: decode_pb2.GenerationStats, finish: str) -> GenerationStats:
    return GenerationStats(
        prompt_tokens=message.prompt_tokens,
        tokens=message.tokens,
        steps=message.steps,
        proposals=message.proposals,
        drafted=_unpack_drafted(message.drafted),
        missed=Counter(dict(message.missed)),
        seconds={part: message.seconds[part] for part in PARTS},
        finish=finish,
    )


def _unpack_drafted(rows: Iterable[decode_pb2.DraftCount]) -> DraftCounts:
    drafted = DraftCounts()
    for row in rows:
        for stage in STAGES:
            if count := getattr(row, stage):
                getattr(drafted, stage)[source_bits(row.source), row.depth] = count
    return drafted
