"""Commands can read the file in docs/how-to/configure.md."""

from __future__ import annotations

import re
from pathlib import Path

from suffolk.cli.options.config_file import read_config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "configure.md"


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    found = re.search(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "suffolk.toml").write_text(found[1])
    worker = read_config(tmp_path / "suffolk.toml", "worker")
    assert {name: given.value for name, given in worker.items()} == {
        "model": "MODEL",
        "datastore": ("code/", "grpc://127.0.0.1:7700/wiki"),
        "slots": 16,
        "queue": 128,
    }
    assert read_config(tmp_path / "suffolk.toml", "generate")["top_k"].value == 40
