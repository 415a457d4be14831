"""The configurations of a ReDrafter head, of its beams and of its loss. All raise the errors of ``check_fields``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from suffolk.datastore.settings import Checked, Within

KIND = "redrafter"
"""The value of "suffolk" in config.json."""


@dataclass(frozen=True, slots=True)
class RedrafterConfig(Checked):
    """The configuration of a head (``model.py``).

    Attributes:
        vocab_size: the number of tokens that the head can draft.
        hidden_size: the target's.
        exit_dim: width of the residual blocks.
        blocks: number of residual blocks.
        initial_state: ``embedding`` (the paper's s_0 = e_0) or ``zero``.
        output: ``own`` (the head has an output layer) or ``target`` (the head uses the target's output layer).
        recurrent: whether the state is recurrent. Otherwise it is the sum of the embeddings: U = W = I, b = 0 and f(x) = x in
            section 3.1 of the paper.
    """

    vocab_size: Annotated[int, Within(1, 1 << 24)]
    hidden_size: Annotated[int, Within(1, 1 << 16)]
    exit_dim: Annotated[int, Within(1, 1 << 18)]
    blocks: Annotated[int, Within(0, 64)] = 2
    initial_state: Literal["embedding", "zero"] = "embedding"
    output: Literal["own", "target"] = "own"
    recurrent: bool = True


@dataclass(frozen=True, slots=True)
class BeamConfig(Checked):
    """Bounds of the beams. They end earlier if the next step of the head is not worth its cost.

    Attributes:
        width: beams per request.
        length: the most tokens of a beam, and the most steps of the head. The best is ``LossConfig.tokens`` of its training.
    """

    width: Annotated[int, Within(1, 64)] = 8
    length: Annotated[int, Within(1, 64)] = 5


@dataclass(frozen=True, slots=True)
class LossConfig(Checked):
    """The loss of a head in training (``training.py``).

    Attributes:
        tokens: the number of tokens that it predicts after each hidden state. The paper trains 5.
        distillation: whether to learn the target's distribution of each token, instead of the text's token.
    """

    tokens: Annotated[int, Within(1, 64)] = 5
    distillation: bool = False
