"""One request: its tokens, sampling, finish reason and counts."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context

import numpy as np
import numpy.typing as npt

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.prompt import Prompt, encode, encode_continuation
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.text_stream import TextStream
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededUniforms
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class PredictionCounter:
    """Counts the predicted tokens that a generated text lacks. Not thread-safe.

    It computes the longest common subsequence of the two texts, with one bit for each predicted token (Hyyrö 2004, "Bit-parallel
    LCS-length computation revisited"). Adding a token takes time linear in the length of the prediction.
    """

    def __init__(self, prediction: npt.NDArray[np.int32]) -> None:
        """``prediction``: int32[k], the tokens of the predicted text."""
        self._prediction = prediction
        self._all = (1 << len(prediction)) - 1
        self._missing = self._all

    @property
    def missing(self) -> int:
        """Predicted tokens that are not in the generated text, by a shortest diff."""
        return self._missing.bit_count()

    def add(self, tokens: Sequence[int]) -> None:
        """Append ``tokens`` to the generated text."""
        for token in tokens:
            equal = int.from_bytes(np.packbits(self._prediction == token, bitorder="little").tobytes(), "little")
            found = self._missing & equal
            self._missing = ((self._missing + found) | (self._missing - found)) & self._all


class Request:
    """A request from its prompt to its end. Any thread may create it; afterwards only one step loop uses it.

    Attributes:
        number: unique; constant while the request runs.
        drafter: name of its drafter; empty for none, or if log-probabilities of the prompt are wanted.
        max_nodes: the most nodes of a draft tree.
        options: options of its drafts.
        prediction: int32[k], the tokens of the request's predicted text; None if there is no such text, or it is empty.
        tokens: int32[m], prompt and generated tokens; the first ``length`` are set.
        length: tokens so far, prompt and generated.
        slot: its slot in the cache while it runs, else -1.
        matcher: the state of the request's grammar after its text; None without a grammar.
        sampler: samples its tokens.
        row_settings: how a device step (``device_step.py``) samples its tokens; None if the host verifies its drafts. The host
            verifies if log-probabilities or logits are wanted, with verification other than ``match``, and for settings that
            the device lacks.
        uniforms: random numbers of verification ``rejection``.
        stats: its counts and seconds.
        log_probabilities: of the generated tokens, if ``settings.logprobs`` is set.
        prompt_log_probabilities: of the prompt's tokens except the first, if ``settings.prompt_logprobs`` is set.
        context: context variables of the thread that made the request. Drafters run in it, so that logs and traces of
            their calls name the request.
        keep_logits: whether its steps have ``logits``.
    """

    def __init__(
        self,
        number: int,
        target: Target,
        prompt: Prompt,
        settings: SamplingSettings,
        drafter: str = "",
        max_nodes: int = 64,
        options: DraftOptions = DEFAULT_OPTIONS,
        keep_logits: bool = False,
    ) -> None:
        """Encodes the prompt and the prediction, and allocates the tokens.

        Raises:
            InvalidArgument: the prompt is empty, has another form than ``Prompt``, or fills the model's context; prompt,
                prediction or ``stop_token_ids`` have ids outside the vocabulary; text, stop strings or a grammar are given, but
                the target has no tokenizer; or the grammar is refused.
            Unsupported: the grammar needs llguidance, which is not installed or cannot use the tokenizer.
            ResourceExhausted: no memory for the tokens.
        """
        ids = _checked_prompt(prompt, target)
        if settings.stop and target.tokenizer is None:
            raise InvalidArgument(f"stop strings need a tokenizer; model {target.name} was loaded without one")
        _require_known("stop_token_ids", np.array(settings.stop_token_ids, np.int64), target)
        room = settings.max_new_tokens
        if target.context_length is not None:
            room = min(room, target.context_length - len(ids))
        self.number = number
        self.context = copy_context()
        self.drafter = drafter if settings.prompt_logprobs is None else ""
        self.max_nodes = max_nodes
        self.options = options
        self.prediction = _encoded_prediction(options.prediction, ids, target)
        self.settings = settings
        with memory_guard(f"{room} new tokens"):
            self.tokens = np.empty(len(ids) + room, np.int32)
        self.tokens[: len(ids)] = ids
        self.length = len(ids)
        self.slot = -1
        self.matcher = GrammarMatcher.of(target, settings.grammar)
        self.sampler = Sampler(settings, target.vocab_size, target.device, self.matcher, settings.ends(target.eos_ids))
        matches = settings.verification == "match" and not keep_logits
        matches = matches and settings.logprobs is None and settings.prompt_logprobs is None
        self.row_settings = self.sampler.row_settings if matches else None
        self.uniforms = SeededUniforms(settings.seed, target.device)
        missing = 0 if self.prediction is None else len(self.prediction)
        self.stats = GenerationStats(prompt_tokens=len(ids), rejected_prediction_tokens=missing)
        self.log_probabilities: list[LogProbability] = []
        self.prompt_log_probabilities: list[LogProbability] = []
        self._predicted = None if self.prediction is None else PredictionCounter(self.prediction)
        self.keep_logits = keep_logits
        self._eos_ids = frozenset() if settings.ignore_eos else target.eos_ids
        self._hidden_ends = _hidden_ends(settings, self._eos_ids)
        self._text = None
        if target.tokenizer is not None:
            shown = settings.min_tokens, settings.include_stop, settings.skip_special_tokens
            self._text = TextStream(target.tokenizer, settings.stop, *shown)

    @property
    def room(self) -> int:
        """The most drafted tokens that may still be accepted. In the same step, the target adds one more token."""
        return len(self.tokens) - self.length - 1

    @property
    def generated(self) -> list[int]:
        """The tokens generated so far."""
        return [int(token) for token in self.tokens[self.stats.prompt_tokens : self.length]]

    @property
    def reads_scored(self) -> bool:
        """Whether the request still reads a prompt whose log-probabilities are wanted."""
        return self.settings.prompt_logprobs is not None and self.length == self.stats.prompt_tokens

    def contexts(self, tree: DraftTree) -> RowContexts:
        """The texts before each row of a step that verifies ``tree``."""
        return RowContexts.of_tree(self.tokens[: self.length], self.stats.prompt_tokens, tree)

    def commit(
        self, new_tokens: Sequence[int], source_bits: Sequence[int], log_probabilities: Sequence[LogProbability] = ()
    ) -> Step:
        """Append ``new_tokens`` up to the end of the text.

        ``source_bits``: the source bits of each token; 0 if the target sampled it.
        """
        tokens: list[int] = []
        pieces: list[tuple[str, int]] = []
        for token, source in zip(new_tokens, source_bits, strict=True):
            tokens.append(token)
            self.tokens[self.length] = token
            self.length += 1
            if self._text is not None and token not in self._hidden_ends:
                pieces += self._text.push(token, source)
            self.stats.finish = self._finish(token)
            if self.stats.finish:
                break
        if self.stats.finish and self._text is not None:
            pieces += self._text.finish()
        sources = tuple(source_bits[: len(tokens)])
        self.stats.add_tokens(sources)
        if self._predicted is not None:
            self._predicted.add(tokens)
            self.stats.rejected_prediction_tokens = self._predicted.missing
        kept = tuple(log_probabilities[: len(tokens)])
        self.log_probabilities += kept
        return Step(tuple(tokens), sources, tuple(pieces), self.stats.finish, kept)

    def _finish(self, token: int) -> str:
        if token in self._eos_ids:
            return "eos"
        if token in self.settings.stop_token_ids:
            return "stop"
        if self._text is not None and self._text.stopped:
            return "stop"
        if self.matcher is not None and self.matcher.is_complete(self.tokens[self.stats.prompt_tokens : self.length]):
            return "stop"
        if self.length - self.stats.prompt_tokens == self.settings.max_new_tokens:
            return "length"
        return "context" if self.length == len(self.tokens) else ""


def _hidden_ends(settings: SamplingSettings, eos_ids: frozenset[int]) -> frozenset[int]:
    """The tokens that end a text and whose own text is not shown. Other special tokens are hidden by ``TextStream``."""
    if settings.include_stop:
        return frozenset()
    return frozenset(settings.stop_token_ids) | (frozenset() if settings.skip_special_tokens else eos_ids)


def _checked_prompt(prompt: Prompt, target: Target) -> npt.NDArray[np.int32]:
    ids = encode(target, prompt)
    if not len(ids):
        raise InvalidArgument(Field("the prompt"), " is empty; give at least one token")
    _require_known("the prompt", ids, target)
    if target.context_length is not None and len(ids) >= target.context_length:
        raise InvalidArgument(
            Field("the prompt"),
            f" has {len(ids)} tokens; model {target.name} takes {target.context_length} in all; shorten the prompt",
        )
    return ids.astype(np.int32)


def _encoded_prediction(
    prediction: str | Tokens | None, prompt: npt.NDArray[np.int32], target: Target
) -> npt.NDArray[np.int32] | None:
    if prediction is None:
        return None
    ids = encode_continuation(target, prompt, prediction) if isinstance(prediction, str) else prediction
    found = np.asarray(ids, np.int64)
    _require_known("the prediction", found, target)
    return found.astype(np.int32) if len(found) else None


def _require_known(name: str, ids: npt.NDArray[np.int64], target: Target) -> None:
    if len(ids) and (ids.min() < 0 or ids.max() >= target.vocab_size):
        raise InvalidArgument(
            Field(name), f" has ids {ids.min()}..{ids.max()}; model {target.name} has {target.vocab_size}"
        )
