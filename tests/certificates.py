"""A throw-away certificate authority, made with the system's `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Authority"]

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Its certificate is the file `ca`; it vouches for what `issue` makes. Tests are skipped where it cannot be."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl to make certificates with")
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.ca, self._ca_key = directory / "ca.crt", directory / "ca.key"
        name = ("-subj", f"/CN=throw-away {directory.name}")
        _openssl("req", "-x509", *KEY, *name, "-days", "2", "-keyout", self._ca_key, "-out", self.ca)

    def issue(self, name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> tuple[Path, Path]:
        """The files of a certificate for these names, for servers and clients, and of its key; made once."""
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        if certificate.exists():
            return certificate, key
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed = ("-CA", self.ca, "-CAkey", self._ca_key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signed, "-days", "2", "-out", certificate)
        return certificate, key


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
