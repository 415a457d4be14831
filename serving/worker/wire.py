"""Packs prompts, draft options, steps and statistics as protobuf messages, and unpacks them. Does not import torch."""

from __future__ import annotations

from collections import Counter

import numpy as np

from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.draft_stats import STAGES
from suffolk.serving.decoding.engine.loop.prompt import Prompt, read_prompt
from suffolk.serving.decoding.engine.loop.stats import PARTS, GenerationStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.net.proto import decode_pb2
from suffolk.serving.net.tokens import pack_tokens, to_tokens, unpack_tokens
from suffolk.serving.worker import limits
from suffolk.serving.worker.settings import require_known

SOURCE = np.dtype("<u4")
_COUNTS = (
    *("prompt_tokens", "cached_tokens", "tokens", "steps", "draft_calls", "drafted_steps"),
    "rejected_prediction_tokens",
)
"""Fields of ``GenerationStats`` that the protobuf message also has."""


def pack_prompt(prompt: Prompt) -> decode_pb2.GenerateRequest:
    """A request for ``prompt``. Raises InvalidArgument if it is not a text, a conversation or token ids."""
    found = read_prompt(prompt)
    if isinstance(found, str):
        return decode_pb2.GenerateRequest(text=found)
    if isinstance(found, list):
        messages = [decode_pb2.ChatMessage(role=role, content=content) for role, content in found]
        return decode_pb2.GenerateRequest(chat=decode_pb2.Chat(messages=messages))
    return decode_pb2.GenerateRequest(token_ids=pack_tokens(to_tokens(found, "prompt")))


def pack_options(options: DraftOptions) -> decode_pb2.DraftOptions:
    """A message with the options that differ from the defaults. Raises Unsupported for a trace, which cannot be sent."""
    if options.trace:
        raise Unsupported("trace cannot be sent over gRPC; use the HTTP API, or an engine in this process")
    message = decode_pb2.DraftOptions()
    if isinstance(options.prediction, str):
        message.prediction_text = options.prediction
    elif options.prediction is not None:
        message.prediction_token_ids = pack_tokens(to_tokens(options.prediction, "prediction"))
    if options.datastores is not None:
        message.datastores.CopyFrom(decode_pb2.DatastoreNames(names=options.datastores))
    if not options.remember:
        message.remember = False
    if options.group is not None:
        message.group = options.group
    return message


def unpack_options(message: decode_pb2.DraftOptions) -> DraftOptions:
    """The inverse of ``pack_options``. Raises InvalidArgument for a value out of its limits, Unsupported for an unknown field."""
    require_known(message, "options")
    require_known(message.datastores, "options.datastores")
    check_range("options.datastores: the number of names", len(message.datastores.names), 0, limits.MAX_DATASTORES)
    kind = message.WhichOneof("prediction")
    ids = unpack_tokens(message.prediction_token_ids, "options.prediction_token_ids")
    return DraftOptions(
        prediction={None: None, "prediction_text": message.prediction_text, "prediction_token_ids": ids}[kind],
        datastores=tuple(message.datastores.names) if message.HasField("datastores") else None,
        remember=message.remember if message.HasField("remember") else True,
        group=message.group if message.HasField("group") else None,
    )


def pack_step(step: Step, stats: GenerationStats | None, shows_sources: bool = True) -> decode_pb2.GenerateReply:
    """A reply for ``step``.

    Args:
        stats: statistics for the last step; None for all other steps.
        shows_sources: whether the reply says which drafters proposed each token. If not, all sources are 0.
    """
    shown = 0xFFFFFFFF if shows_sources else 0
    return decode_pb2.GenerateReply(
        tokens=pack_tokens(np.array(step.tokens, np.int32)),
        sources=(np.array(step.sources, SOURCE) & SOURCE.type(shown)).tobytes(),
        pieces=[decode_pb2.Piece(text=text, source=source & shown) for text, source in step.pieces],
        log_probabilities=[_pack_log_probability(each) for each in step.log_probabilities],
        finish=step.finish,
        stats=None if stats is None else _pack_stats(stats, shows_sources),
    )


def unpack_step(message: decode_pb2.GenerateReply) -> tuple[Step, GenerationStats | None]:
    """The inverse of ``pack_step``. Raises InvalidArgument if the message is malformed."""
    tokens = tuple(unpack_tokens(message.tokens, "tokens").tolist())
    if len(message.sources) != len(tokens) * SOURCE.itemsize:
        raise InvalidArgument(
            f"sources has {len(message.sources)} bytes for {len(tokens)} tokens; each takes {SOURCE.itemsize}"
        )
    if len(message.log_probabilities) not in (0, len(tokens)):
        raise InvalidArgument(
            Field("log_probabilities"), f" has {len(message.log_probabilities)} entries for {len(tokens)} tokens"
        )
    if bool(message.finish) != message.HasField("stats"):
        raise InvalidArgument("the last reply must have stats, and no other reply may have them")
    step = Step(
        tokens=tokens,
        sources=tuple(np.frombuffer(message.sources, SOURCE).tolist()),
        pieces=tuple((piece.text, piece.source) for piece in message.pieces),
        finish=message.finish,
        log_probabilities=tuple(map(_unpack_log_probability, tokens, message.log_probabilities)),
    )
    return step, _unpack_stats(message.stats, message.finish) if message.finish else None


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


def _pack_stats(stats: GenerationStats, shows_sources: bool) -> decode_pb2.GenerationStats:
    return decode_pb2.GenerationStats(
        **{name: getattr(stats, name) for name in (*_COUNTS, "mean_generated_length", "accepted_prediction_tokens")},
        drafted=[_pack_count(**row) for row in stats.drafted.rows()] if shows_sources else [],
        draft_failures=stats.draft_failures if shows_sources else {},
        seconds=stats.seconds,
    )


def _pack_count(source: int, **row: int) -> decode_pb2.DraftCount:
    return decode_pb2.DraftCount(source=source_name(source), source_bits=source, **row)


def _unpack_stats(message: decode_pb2.GenerationStats, finish: str) -> GenerationStats:
    stats = GenerationStats(
        **{name: getattr(message, name) for name in _COUNTS},
        draft_failures=Counter(dict(message.draft_failures)),
        seconds={part: message.seconds[part] for part in PARTS},
        finish=finish,
    )
    for row in message.drafted:
        for stage in STAGES:
            if count := getattr(row, stage):
                getattr(stats.drafted, stage)[row.source_bits, row.depth] = count
    return stats
