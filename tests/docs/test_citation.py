"""CITATION.cff has the fields that its format requires, and the version and licence of the package."""

from __future__ import annotations

from pathlib import Path

import yaml

from suffolk.datastore.version import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_the_citation_agrees_with_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == __version__
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text()
    for paper in citation["references"]:
        assert {"type", "title", "authors"} <= paper.keys()
        assert "doi" in paper or paper["url"].startswith("https://arxiv.org/abs/")
