"""The shape of a recurrent draft head, its training objective, and the bounds of its beams. Each raises as ``check_fields``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from suffolk.serving.engine.checked_fields import Within, check_fields

KIND = "redrafter"
"""The value of "suffolk" in our own config.json."""


@dataclass(frozen=True, slots=True)
class RedrafterConfig:
    """The shape of a head (``model.py``).

    Attributes:
        vocab_size: outputs of the head.
        hidden_size: the target's.
        exit_dim: width of the residual blocks; ``blocks``: how many there are.
        initial_state: ``embedding`` (the paper's s_0 = e_0) or ``zero``.
        output: ``own`` (an output layer of the head's) or ``target`` (the target's).
        recurrent: False: the state is the sum of the embeddings (U = W = I, b = 0, f(x) = x; section 3.1 of the paper).
    """

    vocab_size: Annotated[int, Within(1, 1 << 24)]
    hidden_size: Annotated[int, Within(1, 1 << 16)]
    exit_dim: Annotated[int, Within(1, 1 << 18)]
    blocks: Annotated[int, Within(0, 64)] = 2
    initial_state: Literal["embedding", "zero"] = "embedding"
    output: Literal["own", "target"] = "own"
    recurrent: bool = True

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class BeamConfig:
    """Bounds of the beams; they end earlier where a step of the head is not worth its cost.

    Attributes:
        width: beams a request.
        length: tokens of a beam, and steps of the head, at most. Best is the length that the head was trained for.
    """

    width: Annotated[int, Within(1, 64)] = 8
    length: Annotated[int, Within(1, 64)] = 5

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class LossConfig:
    """The loss that a head is trained with (``training.py``).

    Attributes:
        tokens: how many tokens ahead it predicts behind each feature. The paper trains 5.
        distillation: learn the target's distribution of each of these tokens instead of the text's token.
    """

    tokens: Annotated[int, Within(1, 64)] = 5
    distillation: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
