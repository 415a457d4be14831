"""Tests TLS files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from suffolk.serving.net import tls
from suffolk.serving.net.tls import ServerTls, TlsFiles, channel_credentials


def test_bad_tls_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="/none.pem: cannot read the TLS file: No such file or directory; correct"):
        ServerTls(TlsFiles(f"{tmp_path}/none.pem", f"{tmp_path}/none.pem"))
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(InvalidArgument, match="junk.pem: not a certificate and its key in PEM form"):
        ServerTls(TlsFiles(f"{tmp_path}/junk.pem", f"{tmp_path}/junk.pem"))
    with pytest.raises(InvalidArgument, match="junk.pem: not a certificate and its key in PEM form"):
        channel_credentials(TlsFiles(key=f"{tmp_path}/junk.pem"))  # gRPC aborts the process for half a pair
    with pytest.raises(NotFound, match=f"{tmp_path}: cannot read the TLS file: Is a directory"):
        channel_credentials(TlsFiles(f"{tmp_path}/junk.pem", str(tmp_path)))


def test_an_unreadable_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an unreadable key used to end in a traceback. OpenSSL's PermissionError names no file."""

    def refuse(path: Path) -> bytes:  # root may read all files
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(tls, "read_bounded", refuse)
    with pytest.raises(PermissionDenied, match="key.pem: cannot read the TLS file: Permission denied"):
        channel_credentials(TlsFiles(ca=f"{tmp_path}/key.pem"))
