"""A certificate authority made with openssl, for servers that speak TLS."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: the authority's certificate, and the server's certificate and key."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def create(cls, folder: Path) -> Certificates:
        made = cls(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")
        ca_key, request, names = folder / "ca-key.pem", folder / "server.csr", folder / "names"
        names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        authority = ["-subj", "/CN=test authority", "-addext", "basicConstraints=critical,CA:TRUE"]
        _openssl(*new, "-x509", "-days", "2", *authority, "-keyout", ca_key, "-out", made.authority)
        _openssl(*new, "-subj", "/CN=127.0.0.1", "-keyout", made.key, "-out", request)
        signer = ["-CA", made.authority, "-CAkey", ca_key, "-CAcreateserial"]
        _openssl(
            "x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", names, "-out", made.certificate
        )
        return made

    def context(self) -> ssl.SSLContext:
        """The TLS context of a client that trusts the server."""
        return ssl.create_default_context(cafile=str(self.authority))


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)
