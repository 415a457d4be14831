"""A tiny target for all tests of a module."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())
