"""A tiny model with stored pass costs, and a datastore for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.generate_command import store_of
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module", autouse=True)
def known_costs(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pass costs are measured once and stored, so that commands do not measure them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        target = Target.load(model)
        key = CostKey.of(target)
        path = costs_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_costs(measure(target, 1), key, path)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: str) -> str:
    return store_of(tmp_path_factory.mktemp("stores") / "bytes", fingerprint(load_tokenizer(model)))


@pytest.fixture(autouse=True)
def same_threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
