"""The committed code of the .proto files equals the compiler's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.serving.net.proto import decode_pb2, draft_pb2
from suffolk.serving.net.proto.generate import OUTPUTS, ROOT, generate


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed, so nothing can be compiled")
    generate(tmp_path)
    for name in OUTPUTS:
        fresh = (tmp_path / "suffolk/serving/net/proto" / name).read_text()
        committed = (ROOT / "serving/net/proto" / name).read_text()
        assert committed == fresh, f"{name} is stale: run python -m suffolk.serving.net.proto.generate"


def test_services_have_their_names_and_methods() -> None:
    draft = draft_pb2.DESCRIPTOR.services_by_name["DraftService"]
    assert draft.full_name == "suffolk.v1.DraftService"
    assert sorted(method.name for method in draft.methods) == sorted(
        [
            "Draft",
            "Lookup",
            "Count",
            "Append",
            "AppendStream",
            "Get",
            "Delete",
            "Flush",
            "Stats",
            "GetInfo",
            "GetTokenizer",
            "Occurrences",
        ]
    )
    decode = decode_pb2.DESCRIPTOR.services_by_name["DecodeService"]
    assert decode.full_name == "suffolk.v1.DecodeService"
    assert [method.name for method in decode.methods] == ["Generate", "GetInfo"]
