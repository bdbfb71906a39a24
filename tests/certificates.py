"""Certificates for servers and clients of the tests."""

import subprocess
from pathlib import Path

from msgspec import Struct


class Certificates(Struct, frozen=True):
    """A test CA, another that nobody trusts, and what they signed. `x` is x.crt with x.key."""

    folder: Path

    def crt(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def _openssl(self, *words: object) -> None:
        command = ["openssl", *map(str, words)]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def _request(self, name: str, subject: str) -> tuple[object, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        return ("req", *curve, "-keyout", self.key(name), "-subj", subject)

    def authority(self, name: str) -> None:
        extensions = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        request = self._request(name, f"/CN={name}")
        self._openssl(*request, "-x509", "-days", 30, *extensions, "-out", self.crt(name))

    def sign(
        self, name: str, authority: str, common_name: str, extension: str, days: int = 30
    ) -> None:
        csr, ext = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        ext.write_text(extension + "\nbasicConstraints=critical,CA:FALSE\n")
        self._openssl(*self._request(name, f"/CN={common_name}"), "-out", csr)
        by = ("-CA", self.crt(authority), "-CAkey", self.key(authority), "-CAcreateserial")
        more = ("-days", days, "-extfile", ext)
        self._openssl("x509", "-req", "-in", csr, *by, *more, "-out", self.crt(name))

    def version_1(self, name: str, authority: str, common_name: str) -> None:
        """As PostgreSQL's documentation has one signed: without extensions."""
        csr = self.folder / f"{name}.csr"
        self._openssl(*self._request(name, f"/CN={common_name}"), "-out", csr)
        by = ("-CA", self.crt(authority), "-CAkey", self.key(authority), "-CAcreateserial")
        self._openssl("x509", "-req", "-in", csr, *by, "-days", 30, "-out", self.crt(name))

    def self_signed(self, name: str, common_name: str, kind: str = "rsa") -> None:
        """As PostgreSQL's documentation makes one: RSA, CA:TRUE, no alternative name."""
        subject = ("-nodes", "-keyout", self.key(name), "-subj", f"/CN={common_name}")
        words = ("req", "-new", "-x509", "-days", 365, "-newkey", kind, *subject)
        self._openssl(*words, "-out", self.crt(name))
