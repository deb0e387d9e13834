"""The fingerprint of a certificate: by it somebody elsewhere trusts one server, without an authority."""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from headgate.protocol.port import FabricError

_PREFIX: Final = "sha256:"
_FORM: Final = re.compile(r"[0-9a-f]{64}")
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 of a certificate in DER, as 64 hexadecimal digits; written as `sha256:…`."""

    digits: str

    def __post_init__(self) -> None:
        if not _FORM.fullmatch(self.digits):
            raise FabricError(
                f"{self.digits!r} is no fingerprint of a certificate", hint="it is sha256: and 64 hexadecimal digits"
            )

    def __str__(self) -> str:
        return _PREFIX + self.digits

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it as it is written here or by openssl.

        >>> str(Fingerprint.parse("SHA256:" + ":".join(["AB"] * 32)))[:15]
        'sha256:abababab'
        """
        return cls(text.strip().lower().removeprefix(_PREFIX).removeprefix("sha256 fingerprint=").replace(":", ""))

    @classmethod
    def of(cls, der: bytes) -> Self:
        """That of a certificate in DER."""
        return cls(hashlib.sha256(der).hexdigest())

    @classmethod
    def of_file(cls, certificate: Path) -> Self:
        """That of the first certificate in a PEM file, which is the server's own."""
        try:
            found = _CERTIFICATE.search(certificate.read_text(encoding="ascii", errors="replace"))
            return cls.of(ssl.PEM_cert_to_DER_cert(found[0] if found else ""))
        except (OSError, ValueError) as error:
            raise FabricError(
                f"the certificate {certificate} cannot be read: {error}", hint="give a PEM file"
            ) from error

    def matches(self, der: bytes | None) -> bool:
        """Whether a certificate is the one."""
        return der is not None and hmac.compare_digest(self.digits, hashlib.sha256(der).hexdigest())
