"""The measurement of recovery writes a log, and opens it again."""

from __future__ import annotations

from pathlib import Path

from research.live_replay import measure_replay
from tests.support.stores import make_store, random_documents


def test_a_log_of_so_many_tokens_is_opened_again(tmp_path: Path) -> None:
    make_store(tmp_path / "texts", [random_documents(20, 900, 1, 500)], vocab_size=500).close()
    result = measure_replay(tmp_path / "texts", tmp_path, tokens=20_000, batch=3, threads=1)
    assert result.tokens == 20_000
    assert result.appends == -(-result.documents // 3)
    assert result.log_bytes > 2 * 20_000
    assert min(result.open_seconds, result.read_seconds, result.append_seconds) > 0
