"""Whom a connection trusts by TLS, and by which certificate it is known itself: from files, read at every connection.

So a certificate that is replaced is in force at the next connection, and nobody has to be started again.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Self

from headgate.fabric.fingerprint import Fingerprint
from headgate.protocol.port import FabricError


@dataclass(frozen=True, slots=True)
class Trust:
    """Files in PEM: the authority that signed the server (by default those of the system), our certificate, its key.

    `pinned` takes the authority for the server's certificate itself, whatever name it is made out to. With a
    `fingerprint` only the certificate that has it is trusted, and no authority is asked. One that is `insisting` says
    nothing to a server without TLS.
    """

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    pinned: bool = False
    fingerprint: Fingerprint | None = None
    insisting: bool = True

    @classmethod
    def of(cls, tls_ca: str | None, tls_cert: str | None, tls_key: str | None, tls_fingerprint: str | None) -> Self:
        """From options."""
        return cls(tls_ca, tls_cert, tls_key, False, Fingerprint.parse(tls_fingerprint) if tls_fingerprint else None)

    def context(self) -> ssl.SSLContext:
        """As Python's TLS takes it."""
        try:
            context = ssl.create_default_context(cafile=self.authority)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise FabricError(
                f"the certificates for TLS cannot be read: {error}", hint="check HEADGATE_TLS_CA, _CERT and _KEY"
            ) from error
        if self.pinned:
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.fingerprint is not None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # the one certificate is looked at before anything is said
        return context
