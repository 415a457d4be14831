"""A finished generation as a line of JSON: its tokens, its sampling settings, and its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.records import RECORDING_FORMAT
from suffolk.datastore.checks import check_choice, check_range, listed, number, text, whole_within
from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.loop.generation import Generation

FORMAT = RECORDING_FORMAT
FINISHED = ("eos", "stop", "length", "context")
"""Finish reasons of texts that are recorded."""
COUNTS = ("steps", "draft_calls", "nodes_proposed", "nodes_verified", "accepted", "earned", "mean_generated_length")
"""Fields of ``GenerationStats`` that are kept."""

_MOST_IDS = 1 << 31
_MOST_TOKENS = 1 << 24
_LEFT_OUT: dict[str, Any] = {"processors": (), "token_mask": None, "grammar": None}
_SETTINGS = tuple(name for name in SamplingSettings.__dataclass_fields__ if name not in _LEFT_OUT)
"""All settings except functions and grammars."""
_LATER = {"stop_token_ids", "min_tokens", "include_stop", "skip_special_tokens", "prompt_logprobs"}
"""Settings that older recordings of this format lack. They take their defaults."""
_TEXTS = ("model", "group", "drafter", "finish")
_FIELDS = (*_TEXTS, "tokenizer", "vocab_size", "max_nodes", "settings", "counts", "prompt", "generated")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One finished generation. Immutable by convention: the arrays are not copied.

    Attributes:
        prompt: int32[n], token ids of the prompt.
        generated: int32[m], generated token ids, m >= 1.
        settings: sampling settings without functions and grammar; ``max_new_tokens`` is cut to the model's context length.
        vocab_size: vocabulary size of the model.
        model: name of the model.
        tokenizer: fingerprint of the model's tokenizer, or None.
        group: the kind of prompt, by which reports group their results; may be empty.
        finish: finish reason, one of ``FINISHED``.
        drafter: name of the drafter; "none" for plain decoding.
        max_nodes: largest draft tree.
        counts: ``COUNTS`` of the original generation.
    """

    prompt: npt.NDArray[np.int32]
    generated: npt.NDArray[np.int32]
    settings: SamplingSettings
    vocab_size: int
    model: str = ""
    tokenizer: str | None = None
    group: str = ""
    finish: str = "length"
    drafter: str = "none"
    max_nodes: int = 64
    counts: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(
        generation: Generation, vocab_size: int, model: str = "", tokenizer: str | None = None, group: str = ""
    ) -> Recording:
        """Record ``generation``. Raises InvalidArgument if it is running, was cancelled or has failed."""
        request, stats = generation.request, generation.stats
        if stats.finish not in FINISHED:
            raise InvalidArgument(
                f"a generation that is {stats.finish or 'running'} cannot be recorded; wait until it has finished"
            )
        begin = stats.prompt_tokens
        return Recording(
            prompt=request.tokens[:begin].copy(),
            generated=request.tokens[begin : request.length].copy(),
            settings=replace(request.settings, max_new_tokens=len(request.tokens) - begin, **_LEFT_OUT),
            vocab_size=vocab_size,
            model=model,
            tokenizer=tokenizer,
            group=group,
            finish=stats.finish,
            drafter=request.drafter or "none",
            max_nodes=request.max_nodes,
            counts={name: getattr(stats, name) for name in COUNTS},
        )

    def to_dict(self) -> dict[str, Any]:
        """The recording as a dict for JSON."""
        return {"recording": FORMAT} | {name: getattr(self, name) for name in _FIELDS} | {
            "settings": {name: getattr(self.settings, name) for name in _SETTINGS},
            "counts": dict(self.counts), "prompt": self.prompt.tolist(), "generated": self.generated.tolist(),
        }  # fmt: skip

    @staticmethod
    def from_dict(row: object) -> Recording:
        """The inverse of ``to_dict``.

        Raises:
            InvalidArgument: ``row`` is not a recording, or a field is missing, unknown or out of its range.
            Unsupported: ``row`` has another format version.
        """
        if not isinstance(row, dict) or "recording" not in row:
            raise InvalidArgument(
                "not a recording: field 'recording' is missing; make recordings with 'suffolk worker --record', or "
                "pass --tokenizer if the file is a log"
            )
        if row["recording"] != FORMAT:
            raise Unsupported(f"field recording is {row['recording']!r}, this version reads {FORMAT}; record again")
        odd = sorted(row.keys() ^ {"recording", *_FIELDS})
        if odd:
            raise InvalidArgument(f"field {odd[0]} is {'unknown' if odd[0] in row else 'missing'}; record again")
        vocab_size = whole_within("field vocab_size", row["vocab_size"], 1, _MOST_IDS)
        tokenizer = row["tokenizer"]
        prompt, generated = (_ids(f"field {name}", row[name], vocab_size) for name in ("prompt", "generated"))
        settings = _settings(row["settings"])
        if len(generated) > settings.max_new_tokens:
            raise InvalidArgument(
                f"field generated has {len(generated)} tokens, but settings.max_new_tokens is {settings.max_new_tokens}"
            )
        check_choice("field finish", row["finish"], FINISHED)
        return Recording(
            prompt, generated, settings, vocab_size,
            tokenizer=None if tokenizer is None else text("field tokenizer", tokenizer),
            max_nodes=whole_within("field max_nodes", row["max_nodes"], 1, _MOST_TOKENS),
            counts=_counts(row["counts"]),
            **{name: text(f"field {name}", row[name]) for name in _TEXTS},
        )  # fmt: skip


def _ids(name: str, values: object, vocab_size: int) -> npt.NDArray[np.int32]:
    ids = listed(name, values, "token ids")
    if not 1 <= len(ids) <= _MOST_TOKENS:
        raise InvalidArgument(Field(name), f" has {len(ids)} tokens; it must have between 1 and {_MOST_TOKENS}")
    odd = next((each for each in ids if type(each) is not int or not 0 <= each < vocab_size), None)
    if odd is not None:
        raise InvalidArgument(Field(name), f" has {odd!r}; token ids of this model are 0..{vocab_size - 1}")
    return np.asarray(ids, np.int32)


def _settings(row: object) -> SamplingSettings:
    if not isinstance(row, dict) or row.keys() | _LATER != set(_SETTINGS):
        raise InvalidArgument(f"field settings must have exactly {', '.join(_SETTINGS)}; record again")
    try:
        return SamplingSettings(**row)
    except InvalidArgument as error:
        raise InvalidArgument(f"field settings: {error}") from error


def _counts(row: object) -> dict[str, float]:
    if not isinstance(row, dict) or row.keys() != set(COUNTS):
        raise InvalidArgument(f"field counts must have exactly {', '.join(COUNTS)}; record again")
    found = {name: number(f"field counts.{name}", value) for name, value in row.items()}
    for name, value in found.items():
        check_range(f"field counts.{name}", value, 0, _MOST_IDS)
    return found
