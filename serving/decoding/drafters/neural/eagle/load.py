"""Loads EAGLE heads, and checks that they fit the target."""

from __future__ import annotations

from pathlib import Path

import torch

from suffolk.datastore.errors import Unsupported
from suffolk.datastore.files import expand
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.eagle.checkpoint import read_checkpoint
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.decoding.drafters.neural.eagle.layer import causal
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.head_check import check_fit
from suffolk.serving.decoding.drafters.neural.head_folder import naming
from suffolk.serving.decoding.drafters.neural.shared_embeddings import SharedEmbeddings
from suffolk.serving.decoding.drafters.neural.weights import fit
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.skinny_gemm import accelerate
from suffolk.serving.decoding.engine.model.target import Target


def load(context: LoadContext, options: Options) -> EagleDrafter:
    """Load the drafter for its entry in the registry. Raises the errors of ``load_eagle``."""
    (folder,) = options["head"]
    drafter = load_eagle(folder, context.require_target(), context.slots, context.capacity)
    context.calibrate(drafter, folder.name)
    return drafter


def load_eagle(
    folder: str | Path,
    target: Target,
    slots: int = 8,
    capacity: int = 4096,
    costs: CostModel | None = None,
    check: bool = True,
) -> EagleDrafter:
    """Load an EAGLE head as a drafter for ``target``, on the target's device and in its dtype.

    Args:
        folder: a head of Suffolk (``EagleHead.save``), of original EAGLE (1, 2, 3), or of speculators.
        slots, capacity, costs: as in ``EagleDrafter``.
        check: whether to run ``check_head``, which takes the time of about a hundred tokens.

    Raises:
        NotFound, Corruption, InvalidArgument: a file is missing, damaged, or not of an EAGLE head.
        Unsupported: the head is for another target, or ``check_head`` refuses it.
        ResourceExhausted: out of memory for the cache.
    """
    head = load_head(folder, target)
    if check:
        check_head(head, target, str(folder))
    accelerate(head)
    head.compress()
    return EagleDrafter(head, slots, capacity, costs=costs)


def load_head(folder: str | Path, target: Target) -> EagleHead:
    """Load the head in ``folder``. Raises the errors of ``load_eagle``."""
    path = expand(folder)
    with naming(path):
        return _build(path, target)


def check_head(head: EagleHead, target: Target, name: str) -> float:
    """The head's acceptance on a text that the target generates. Raises the errors of ``check_fit``."""

    def states_of(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(len(tokens), device=tokens.device)
        return head.step(tokens[None], head.fuse(features)[None], positions, causal)[0]

    def predict(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return head.logits(states_of(features, tokens)).argmax(-1)

    def predict_ids(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return head.d2t[head.draft_logits(states_of(features, tokens)).argmax(-1)]

    others = {}
    if head.config.version == 3 and _are_ids(head.d2t, head.config.vocab_size):
        others["d2t looks like token ids, not offsets"] = predict_ids
    return check_fit(f"EAGLE head {name}", target, head.layers, predict, others)


def _build(folder: Path, target: Target) -> EagleHead:
    config, tensors = read_checkpoint(folder, target)
    if config.layers[0] < 0 or config.layers[-1] > target.layers:
        raise Unsupported(f"it reads layers {list(config.layers)}; model {target.name} has 0..{target.layers}")
    with torch.device("meta"):  # a damaged config.json may need more than the memory
        head = EagleHead(config, SharedEmbeddings.of(target))
        if "embed_tokens" in tensors:
            head.embed_tokens = torch.empty(config.vocab_size, config.hidden_size)
    expected = head.state_dict()
    if unexpected := sorted(tensors.keys() - expected.keys()):
        raise Unsupported(f"tensor {unexpected[0]} is unexpected; heads with this part cannot be read")
    tensors = fit(tensors, expected)
    for name, tensor in expected.items():
        kind = target.dtype if tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensors[name].to(target.device, kind, copy=True)  # a copy, so that the file can be unmapped
    head.load_state_dict(tensors, assign=True)
    return head.eval()


def _are_ids(offsets: torch.Tensor, vocab_size: int) -> bool:
    """Whether all ``offsets`` are in the range of token ids."""
    return int(offsets.min()) >= 0 and int(offsets.max()) < vocab_size
