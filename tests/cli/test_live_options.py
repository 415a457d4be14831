"""``suffolk serve --live`` sets the bounds of a live datastore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.live_options import LiveOptions
from suffolk.cli.main import main
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.stores import byte_tokenizer, make_store, word_tokenizer
from tests.support.waiting import until


def opened(folder: Path, **bounds: Any) -> LiveStore:
    tokenizer = folder / "tokenizer.json"
    word_tokenizer().save(str(tokenizer))
    return LiveOptions(live_tokenizer=str(tokenizer), **bounds).open_live("chat", str(folder / "chat"), "mmap", 1)


def ids(store: LiveStore) -> list[str | None]:
    return [document.source for document in store.documents()]


def test_a_group_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path, live_group_tokens=6) as store:
        for number in range(3):
            store.append("the cat sat", id=str(number), group="ann")
        assert ids(store) == ["1", "2"]
        with pytest.raises(InvalidArgument, match="max_group_tokens"):
            store.append("the cat sat on the mat the cat", group="ann")


def test_another_tokenizer_than_the_datastore_has_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    opened(tmp_path).close()
    byte_tokenizer().save(str(tmp_path / "other.json"))
    options = LiveOptions(live_tokenizer=str(tmp_path / "other.json"))
    with pytest.raises(InvalidArgument, match="another tokenizer than --live-tokenizer"):
        options.open_live("chat", str(tmp_path / "chat"), "mmap", 1)


def test_a_refused_tokenizer_leaves_a_built_datastore_as_it_is(tmp_path: Path) -> None:
    make_store(store := tmp_path / "store", [[[1, 2, 3]]], vocab_size=9).close()
    byte_tokenizer().save(str(tmp_path / "other.json"))
    with pytest.raises(InvalidArgument, match="another tokenizer than --live-tokenizer"):
        LiveOptions(live_tokenizer=str(tmp_path / "other.json")).open_live("chat", str(store), "mmap", 1)
    assert not (store / "live").exists()


def test_a_tokenizer_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened(tmp_path).close()
    options = LiveOptions(live_tokenizer=str(tmp_path / "gone.json"))
    options.open_live("chat", str(tmp_path / "chat"), "mmap", 1).close()
    assert "is not compared with the datastore's tokenizer" in caplog.text


@pytest.mark.parametrize(("evict", "left"), [("age", ["bob", "eve"]), ("use", ["ann", "eve"])])
def test_tokens_are_bounded_in_the_order_of_eviction(tmp_path: Path, evict: str, left: list[str]) -> None:
    with opened(tmp_path, live_tokens=9, live_evict=evict) as store:
        for group in ("ann", "bob"):
            store.append("the cat sat", id=group, group=group)
        store.draft_batch([store.encode("the cat")], group="ann")
        store.append("the dog sat on", id="eve", group="eve")
        until(lambda: len(ids(store)) < 3)
        assert ids(store) == left


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("live_tokens", "-1", "between 0 and"),
        ("live_bytes", "1k", "a whole number between 0 and"),
        ("live_seconds", "-1", "between 0 and"),
        ("live_group_tokens", "0", "between 1 and"),
        ("live_evict", "never", "one of age, use"),
    ],
)
def test_wrong_bounds_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, value: str, allowed: str
) -> None:
    assert main(["serve", "--live", str(tmp_path / "chat"), "--set", f"{name}={value}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"suffolk: {name} is ")
    assert f"it must be {allowed}" in error
