"""Tests that an EAGLE head in vLLM's layout is the head that was trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.neural.eagle.checkpoint import read_checkpoint
from suffolk.serving.integrations.vllm.head_export import write_vllm_head
from tests.support.eagle_heads import random_head, tiny_target


def test_an_exported_head_reads_as_the_same(tmp_path: Path) -> None:
    """The reader of published heads takes vLLM's layout."""
    (tmp_path / "own").mkdir()
    head = random_head(fusion_bias=False)
    head.save(tmp_path / "own")
    write_vllm_head(tmp_path / "own", tmp_path / "vllm")
    config, tensors = read_checkpoint(tmp_path / "vllm", tiny_target())
    assert config == dataclasses.replace(head.config, layers=config.layers)
    known = head.state_dict()
    assert tensors.keys() == known.keys()
    assert all(torch.equal(tensor, known[name].to(tensor)) for name, tensor in tensors.items())


@pytest.mark.parametrize("version", [1, 3], ids=["with a bias", "version 3"])
def test_other_heads_are_refused(tmp_path: Path, version: int) -> None:
    random_head(version).save(tmp_path)
    with pytest.raises(Unsupported, match="only EAGLE heads of version 1"):
        write_vllm_head(tmp_path, tmp_path / "vllm")
