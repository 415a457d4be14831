"""An EAGLE head by its folder, found to fit the target."""

from __future__ import annotations

from pathlib import Path

import torch

from suffolk.datastore.errors import NotFound, SuffolkError, Unsupported
from suffolk.datastore.paths import expand
from suffolk.serving.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.drafters.neural.eagle.checkpoint import read_checkpoint
from suffolk.serving.drafters.neural.eagle.config import EagleTreeConfig
from suffolk.serving.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.drafters.neural.eagle.model import EagleHead, causal
from suffolk.serving.drafters.neural.eagle.shared_embeddings import SharedEmbeddings
from suffolk.serving.drafters.neural.head_check import check_fit
from suffolk.serving.drafters.neural.weights import fit
from suffolk.serving.engine.model.skinny_gemm import accelerate
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_model import CostModel


def load(context: LoadContext, options: Options) -> EagleDrafter:
    """The drafter of the registry. Raises as ``load_eagle``."""
    (folder,) = options["head"]
    drafter = load_eagle(folder, context.require_target(), context.slots, context.capacity)
    context.calibrate(drafter, folder.name)
    return drafter


def load_eagle(
    folder: str | Path,
    target: Target,
    slots: int = 8,
    capacity: int = 4096,
    tree: EagleTreeConfig | None = None,
    costs: CostModel | None = None,
    canary: bool = True,
) -> EagleDrafter:
    """Load an EAGLE head as a drafter for ``target``, on its device and in its dtype.

    Args:
        folder: our own (``EagleHead.save``), original EAGLE (1, 2, 3), or speculators'.
        slots, capacity, tree, costs: as for ``EagleDrafter``.
        canary: whether to try the head on a text of the target's own; takes as long as some hundred tokens.

    Raises:
        NotFound, Corruption, InvalidArgument: the folder's files are missing, damaged or no EAGLE head.
        Unsupported: a head for another target, or one that reads the target wrongly.
        ResourceExhausted: no memory for the cache.
    """
    head = load_head(folder, target)
    if canary:
        check_head(head, target, str(folder))
    accelerate(head)
    head.compress()
    return EagleDrafter(head, slots, capacity, tree, costs)


def load_head(folder: str | Path, target: Target) -> EagleHead:
    """The head in ``folder``; raises as ``load_eagle``."""
    path = expand(folder)
    if not path.is_dir():
        raise NotFound(f"EAGLE head {folder}: there is no such folder; name one with config.json and weights")
    try:
        return _build(path, target)
    except SuffolkError as error:
        raise type(error)(f"EAGLE head {folder}: {error}") from error


def check_head(head: EagleHead, target: Target, name: str) -> float:
    """``check_fit`` for a head: its acceptance on a text of the target's own."""

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
    checkpoint = read_checkpoint(folder, target)
    config, tensors = checkpoint.config, checkpoint.tensors
    if config.layers[0] < 0 or config.layers[-1] > target.layers:
        raise Unsupported(f"it reads layers {list(config.layers)}; model {target.name} has 0..{target.layers}")
    with torch.device("meta"):  # what its config says need not fit into memory
        head = EagleHead(config, SharedEmbeddings.of(target))
        if "embed_tokens" in tensors:
            head.embed_tokens = torch.empty(config.vocab_size, config.hidden_size)
    expected = head.state_dict()
    if unexpected := sorted(tensors.keys() - expected.keys()):
        raise Unsupported(f"tensor {unexpected[0]} is unexpected; heads with this part cannot be read")
    tensors = fit(tensors, expected)
    for name, tensor in expected.items():
        kind = target.dtype if tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensors[name].to(target.device, kind, copy=True)  # out of the file's own memory
    head.load_state_dict(tensors, assign=True)
    return head.eval()


def _are_ids(offsets: torch.Tensor, vocab_size: int) -> bool:
    """Whether ``offsets`` could be token ids by mistake."""
    return int(offsets.min()) >= 0 and int(offsets.max()) < vocab_size
