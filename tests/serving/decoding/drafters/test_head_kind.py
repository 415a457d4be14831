"""The kind of a head follows from its config.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.errors import Corruption
from suffolk.serving.decoding.drafters.neural.options import kind_of


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 200_000])
def test_a_config_that_is_no_json_object_is_damaged(tmp_path: Path, text: str) -> None:
    """Regression: a deeply nested file used to end in a traceback."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(Corruption, match="fetch or train the head again"):
        kind_of(tmp_path)
