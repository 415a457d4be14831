"""Tests drafters of other packages. Each fault of a package gives one error that names the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters import plugins
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.registry import (
    BUILT_IN,
    find,
    names,
    neural_bits,
    source_bits,
    source_name,
)
from tests.support.plugins import install, install_guide

ENTRY = (
    "from suffolk import DrafterEntry, DrafterOption\nENTRY = DrafterEntry(name={!r}, source_id={}, loader={!r}{})\n"
)


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    """Forget all loaded plugins, because a process looks plugins up only once."""
    forget()
    yield
    forget()


def forget() -> None:
    plugins._installed.cache_clear()
    plugins._loaded.clear()


def add(folder: Path, patch: pytest.MonkeyPatch, module: str, text: str, name: str = "mine") -> None:
    install(folder / module, module, f"{name} = {module}:ENTRY", {f"{module}.py": text})
    patch.syspath_prepend(str(folder / module))


def test_a_plugin_is_a_drafter_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install_guide(tmp_path)))
    assert names() == (*BUILT_IN, "copy")
    assert source_name(1 << 20) == "source-20"
    assert DrafterConfig("copy", copy_tokens=2).parts() == {"copy": {"copy_tokens": 2}}
    assert find("copy").package == "suffolk-copy 1.0"
    assert source_name(1 << 20 | 1) == "datastore+copy"
    assert source_bits("copy") == 1 << 20
    assert not neural_bits() & source_bits("copy")
    made = make_drafter("copy", 100)
    assert made is not None
    assert made.name == "copy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1 / 0",
            "m1 1.0: m1:ENTRY cannot be imported: ZeroDivisionError: division by zero; fix, update or uninstall",
        ),
        ("ENTRY = []", "m1 1.0: m1:ENTRY is of type list; it must be a suffolk.DrafterEntry"),
        (
            ENTRY.format("other", 16, "m:load", ""),
            "m1 1.0: its entry is called 'other'; it must have the entry point's name",
        ),
        (ENTRY.format("mine", 15, "m:load", ""), "m1 1.0: source_id is 15; it must be 16 to 31"),
        (ENTRY.format("mine", None, "m:load", ""), "m1 1.0: source_id is None; it must be 16 to 31"),
        (
            ENTRY.format("mine", 16, "m:load", ", options=(DrafterOption('--levels', 'x'),)"),
            "m1 1.0: option --levels is taken; name it --mine-...",
        ),
    ],
)
def test_a_package_that_is_wrong_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "m1", raising=False)
    add(tmp_path, monkeypatch, "m1", text)
    assert "mine" in names()
    with pytest.raises(Unsupported, match=f"^drafter mine of package {message}"):
        find("mine")


def test_a_source_id_belongs_to_one_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, monkeypatch, "m2", ENTRY.format("one", 16, "m:load", ""), "one")
    add(tmp_path, monkeypatch, "m3", ENTRY.format("two", 16, "m:load", ""), "two")
    find("one")
    with pytest.raises(Unsupported, match="package m3 1.0: source_id 16 is taken by drafter one of package m2 1.0"):
        find("two")


def test_a_name_belongs_to_one_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("m4", "m5"):
        add(tmp_path, monkeypatch, module, ENTRY.format("mine", 16, "m:load", ""))
    with pytest.raises(Unsupported, match="drafter mine is in packages m. 1.0 and m. 1.0; uninstall all but one"):
        find("mine")
    plugins._installed.cache_clear()
    add(tmp_path, monkeypatch, "m6", "1 / 0", "eagle")
    assert names().count("eagle") == 1
    assert find("eagle") is BUILT_IN["eagle"]
    assert "drafter eagle of package m6 1.0 is left out: Suffolk has one of this name" in caplog.text


def test_a_loader_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(
        tmp_path, monkeypatch, "m7", ENTRY.format("mine", 16, "m7:load", "") + "load = lambda context, options: 1 / 0\n"
    )
    with pytest.raises(Unsupported, match="drafter mine of package m7 1.0: m7:load failed: ZeroDivisionError"):
        make_drafter("mine", 100)
    with pytest.raises(InvalidArgument, match="drafter is 'other'.*; it must be one of none, datastore, .*, mine"):
        find("other")
