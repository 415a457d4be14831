"""The shape of a recurrent draft head, its training objective, and the bounds of its beams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checks import whole_within

FORMAT = "redrafter"
"""The value of ``suffolk`` in the config.json of a head."""
APPLE_TYPE = "recurrent_drafting_drafter"
"""The value of ``model_type`` in the config.json of Apple's heads."""

INITIAL_STATES = ("embedding", "zero")
OUTPUTS = ("own", "target")

_SIZES = {
    "vocab_size": (1, 1 << 24),
    "hidden_size": (1, 1 << 16),
    "exit_dim": (1, 1 << 18),
    "blocks": (0, 64),
}
_BEAMS = {"width": (1, 64), "length": (1, 64)}


@dataclass(frozen=True, slots=True)
class RedrafterConfig:
    """The shape of a head (``model.py``).

    Attributes:
        vocab_size: outputs of the head; 1..2^24.
        hidden_size: the target's; 1..2^16.
        exit_dim: width of the residual blocks; 1..2^18.
        blocks: residual blocks; 0..64.
        initial_state: ``embedding`` (the paper's s_0 = e_0) or ``zero``.
        output: ``own`` (an output layer of the head's) or ``target`` (the target's).
        recurrent: False: the state is the sum of the embeddings (U = W = I, b = 0, f(x) = x; section 3.1 of the paper).

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    vocab_size: int
    hidden_size: int
    exit_dim: int
    blocks: int = 2
    initial_state: str = "embedding"
    output: str = "own"
    recurrent: bool = True

    def __post_init__(self) -> None:
        _check_whole(self, _SIZES)
        for name, known in (("initial_state", INITIAL_STATES), ("output", OUTPUTS)):
            if getattr(self, name) not in known:
                raise InvalidArgument(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}")
        _check_switch("recurrent", self.recurrent)

    @staticmethod
    def from_json(values: Mapping[str, object]) -> RedrafterConfig:
        """The inverse of ``to_json``.

        Raises:
            InvalidArgument: a key is missing or unknown, or a value is not as described above.
        """
        known = [field.name for field in fields(RedrafterConfig)]
        unknown = sorted(values.keys() - {*known, "suffolk"})
        if unknown or values.get("suffolk") != FORMAT:
            key = unknown[0] if unknown else "suffolk"
            raise InvalidArgument(
                f"head config: {key} is {values.get(key)!r}; it must have suffolk = {FORMAT!r} and {', '.join(known)}, no more"
            )
        missing = [name for name in known if name not in values]
        if missing:
            raise InvalidArgument(f"head config: {missing[0]} is missing; add it, or save the head again")
        return RedrafterConfig(**{name: values[name] for name in known})  # type: ignore[arg-type]  # checked when made

    def to_json(self) -> dict[str, object]:
        """All attributes, and ``suffolk``: the name of the format."""
        return {"suffolk": FORMAT} | asdict(self)


@dataclass(frozen=True, slots=True)
class BeamConfig:
    """Bounds of the beams; they end earlier where a step of the head is not worth its cost.

    Attributes:
        width: beams a request; 1..64.
        length: tokens of a beam, and steps of the head, at most; 1..64. Best is the length that the head was trained for.

    Raises:
        InvalidArgument: a value is no whole number or out of its range.
    """

    width: int = 8
    length: int = 5

    def __post_init__(self) -> None:
        _check_whole(self, _BEAMS)


@dataclass(frozen=True, slots=True)
class LossConfig:
    """The loss that a head is trained with (``training.py``).

    Attributes:
        tokens: how many tokens ahead it predicts behind each feature; 1..64. The paper trains 5.
        distillation: learn the target's distribution of each of these tokens instead of the text's token.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    tokens: int = 5
    distillation: bool = False

    def __post_init__(self) -> None:
        _check_whole(self, {"tokens": _BEAMS["length"]})
        _check_switch("distillation", self.distillation)


def _check_whole(config: object, bounds: Mapping[str, tuple[int, int]]) -> None:
    for name, (least, most) in bounds.items():
        whole_within(name, getattr(config, name), least, most)


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} is {value!r}; it must be true or false")
