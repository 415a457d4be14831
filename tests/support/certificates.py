"""Makes certificates for tests with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes the certificates, is missing"
)


def make_certificates(folder: Path) -> Path:
    """Write ca.pem to ``folder``, and .pem and .key files of server, client and stranger (of another authority)."""

    def make(name: str, *extra: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        words = ("openssl", "req", "-x509", *key, "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}", *extra)
        subprocess.run(words, cwd=folder, check=True, capture_output=True)

    make("ca")
    make("stranger")
    for name in ("server", "client"):
        make(name, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1,IP:127.0.0.2")
    return folder
