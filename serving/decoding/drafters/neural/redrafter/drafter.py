"""The ReDrafter drafter drafts the best beams of a recurrent head as a tree, or a sampled chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Corruption
from suffolk.datastore.files import expand
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.draft_state import StatefulDrafter
from suffolk.serving.decoding.drafters.neural.head_check import check_fit
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG, naming, own_config, read_config
from suffolk.serving.decoding.drafters.neural.redrafter.beam_state import BeamState, ReadPrefix
from suffolk.serving.decoding.drafters.neural.redrafter.config import KIND, BeamConfig, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.neural.redrafter.steps import Steps, measure_steps
from suffolk.serving.decoding.drafters.neural.weights import FILE, fit, read_tensors
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, Proposal
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.skinny_gemm import accelerate
from suffolk.serving.decoding.engine.model.target import Target


class RedrafterDrafter(StatefulDrafter[BeamState]):
    """Drafts from the target's last hidden state (``FeatureDrafter``). Not thread-safe.

    With verification ``match``, beam search gives trees. At a temperature above 0, beams are scored with the target's noise
    (``coupled_sampling.py``).

    With ``rejection`` at a temperature above 0, the draft is one chain sampled from the head's distribution. Rejection sampling
    of the best of several beams would change the distribution of the text.
    """

    name = "redrafter"

    def __init__(
        self,
        head: RedrafterHead,
        target: Target,
        slots: int = 8,
        config: BeamConfig | None = None,
        costs: CostModel | None = None,
    ) -> None:
        """``slots``: the most requests at once. ``costs``: costs of the head's steps; None to measure them now."""
        super().__init__("redrafter")
        self._config = config or BeamConfig()
        self.layers = head.layers
        self._vocab_size = target.vocab_size
        costs = costs or measure_steps(head, slots * self._config.width)
        self._steps = Steps(head, target.eos_ids, self._config, costs)
        self._read: dict[int, ReadPrefix] = {}

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``."""
        self._steps.confidence = confidence

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        if not len(features):
            return
        read = self._read.get(request_id)
        tokens = len(features) + (0 if read is None else read.tokens)
        self._read[request_id] = ReadPrefix(tokens, features[-1, 0].clone())  # a view would keep all features in memory

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self._calls += 1
        drafts = [self._begin(request) for request in requests]
        self._steps.draft([draft for draft in drafts if draft is not None and draft.room])
        return [DraftTree.empty() if draft is None else draft.proposal for draft in drafts]

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            draft = self._states.get(request_id)
            if draft is not None and len(draft.tree):
                self._steps.learn(draft, tokens)

    def release(self, request_id: int) -> None:
        self._read.pop(request_id, None)
        super().release(request_id)

    def stats(self) -> dict[str, float]:
        return super().stats() | {"passes": self._steps.count}

    def close(self) -> None:
        self._read.clear()
        super().close()

    def _begin(self, request: DraftRequest) -> BeamState | None:
        """The request's state at the beginning of a step; None if hidden states are missing."""
        read, draft = self._read.get(request.request_id), self._states.get(request.request_id)
        if read is None or read.tokens != len(request.tokens) - 1:
            received, size = 0 if read is None else read.tokens, len(request.tokens) - 1
            self.failures.add("Unavailable", f"hidden states of {received} tokens have come, {size} are needed")
            if draft is not None:
                draft.forget()
            return None
        if draft is None:
            draft = self._states[request.request_id] = BeamState(request, self._vocab_size, read.feature.device)
        draft.begin(request, read.feature, self._config.length)
        return draft


APPLE_TYPE = "recurrent_drafting_drafter"
_KEYS = {  # of Apple's config.json (ml-recurrent-drafter)
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "exit_dim": "exit_dim",
    "blocks": "num_draft_layers",
    "recurrent": "rnn",
}
_NAMES = {"token_to_state": "rnn_w", "state_to_state": "rnn_u", "projection": "input_proj"}


def load(context: LoadContext, options: Options) -> RedrafterDrafter:
    """Load the drafter for its entry in the registry. Raises the errors of ``load_redrafter``."""
    (folder,) = options["head"]
    drafter = load_redrafter(folder, context.require_target(), context.slots)
    context.calibrate(drafter, folder.name)
    return drafter


def load_redrafter(
    folder: str | Path,
    target: Target,
    slots: int = 8,
    costs: CostModel | None = None,
    check: bool = True,
) -> RedrafterDrafter:
    """Load a head of Suffolk's or Apple's format as a drafter, on the target's device and in its dtype.

    ``slots``: the most requests at once, as in the engine. ``check``: whether to run ``check_head``, which takes the time of about
    a hundred tokens. Raises the errors of ``load_head`` and ``check_head``.
    """
    head = load_head(folder, target).eval()
    if check:
        check_head(head, target, str(folder))
    accelerate(head)
    head.compress()
    return RedrafterDrafter(head, target, slots, costs=costs)


def load_head(folder: str | Path, target: Target) -> RedrafterHead:
    """Load the head in ``folder``.

    Raises:
        NotFound: the folder or a file is missing.
        Corruption: a file is damaged; a tensor is missing, unexpected, of another shape, or not finite.
        Unsupported: the head is not a ReDrafter head, or its hidden size or vocabulary is not the target's.
        ResourceExhausted: out of memory.
    """
    path = expand(folder)
    with naming(path), memory_guard(f"head {path}"):
        values = read_config(path)
        is_apple = values.get("model_type") == APPLE_TYPE
        config = (
            apple_config(values, path / CONFIG)
            if is_apple
            else own_config(RedrafterConfig, KIND, values, path / CONFIG)
        )
        head = RedrafterHead(config, target)
        wanted = head.state_dict()
        names = {name: apple_name(name, config.blocks) if is_apple else name for name in wanted}
        head.load_state_dict(fit(read_tensors(path / FILE), wanted, names))
    return head


def check_head(head: RedrafterHead, target: Target, name: str) -> float:
    """The head's acceptance on a text that the target generates. Raises the errors of ``check_fit``."""

    def predict(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        read = torch.cat(
            [tokens[:1], tokens[:-1]]
        )  # the token before the first is not given, so the first stands in; its prediction does not count
        states = head.advance(head.initial_state(read), tokens)
        return head.logits(features[:, 0], states).argmax(-1)

    return check_fit(f"ReDrafter head {name}", target, head.layers, predict)


def apple_config(values: Mapping[str, Any], path: Path) -> RedrafterConfig:
    """The configuration of a head from ``values``, the config.json at ``path``. Raises the Corruption of ``own_config``."""
    if missing := [key for key in _KEYS.values() if key not in values]:
        raise Corruption(f"{path}: {missing[0]} is missing; fetch the head again")
    named = {name: values[key] for name, key in _KEYS.items()}
    return own_config(RedrafterConfig, KIND, named | {"suffolk": KIND, "initial_state": "zero"}, path)


def apple_name(name: str, blocks: int) -> str:
    """Apple's name of the tensor ``name`` of a ``RedrafterHead`` with ``blocks`` blocks.

    Apple's heads have rnn_w and rnn_u, and input_proj if exit_dim is not twice the hidden size. Block K is lm_head.K.linear. The
    output layer is lm_head.N.weight, where N is ``blocks``. The initial state is zero.
    """
    first, _, rest = name.partition(".")
    if first == "blocks":
        number, _, part = rest.partition(".")
        return f"lm_head.{number}.linear.{part}"
    return f"lm_head.{blocks}.{rest}" if first == "output" else f"{_NAMES[first]}.{rest}"
