"""The files with this peer's credentials: read at the start, and again when they are replaced.

Owns the time of day at which certificates are judged, and gRPC's credentials. The checks are in `security.credentials`.
"""

import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc

from gadget_svm.peers.process.config import PeerConfig
from gadget_svm.peers.security.credentials import Credentials, Identity, Verifier
from gadget_svm.peers.security.errors import CredentialsError, UntrustedError
from gadget_svm.peers.security.handshake import Handshake
from gadget_svm.peers.security.revocation import RevocationFile, file_stamp
from gadget_svm.peers.wire.limits import NONCE_BYTES, Limits

log = logging.getLogger(__name__)


class CredentialFiles:
    """This peer's certificate, key, authority and revocation list, as the files are now.

    Raises
    ------
    CredentialsError
        The files cannot be used; the message names the file and the fix.
    """

    def __init__(self, cert: Path, key: Path, ca: Path, revoked: Path, expect: str | None = None) -> None:
        self._paths = (cert, key, ca, revoked)
        self.credentials = own = Credentials.load(*self._paths, expect, now=time.time())
        self.name = own.name
        self._revocation_file = RevocationFile(revoked, own.authority)
        self._verifier = Verifier(own.authority, self._revocation_file.read(time.time()))
        self._seen = [file_stamp(path) for path in self._paths[:3]]
        self._renewed: Any = None  # for the server, which asks in a thread of gRPC's
        for warning in own.warnings:
            log.warning("%s", warning)

    @classmethod
    def of(cls, config: PeerConfig) -> Self:
        """Read the files that a peer.toml names."""
        tls = config.tls
        return cls(tls.cert, tls.key, tls.ca, tls.revoked, config.peer.name)

    @property
    def expires(self) -> float:
        """When this peer's certificate ends, in seconds since 1970."""
        return self.credentials.not_after

    def identify(self, certificate: bytes) -> Identity:
        """Return whose certificate this is; an UntrustedError if it is not valid now."""
        return self._verifier.check(certificate, time.time())

    def problem(self) -> str:
        """Return why this peer's own certificate is not valid now; empty if it is."""
        try:
            self.identify(self.credentials.cert_pem)
        except UntrustedError as error:
            return error.reason
        return ""

    def handshake(self, limits: Limits, *, dialled: bool, expect: str | None = None) -> Handshake:
        """Begin the handshake of a new link."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Handshake(self.credentials, self._verifier, limits, nonce=nonce, dialled=dialled, expect=expect)

    def channel_credentials(self) -> Any:
        """Return what a channel needs to present our certificate and to trust our authority only."""
        own = self.credentials
        return grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)

    def server_credentials(self, began: Callable[[], None] = lambda: None) -> Any:
        """Return what a server needs to ask every client for a certificate of our authority.

        ``began`` is called, in a thread of gRPC's, when a connection begins.
        """

        def newest() -> Any:
            began()
            renewed, self._renewed = self._renewed, None
            return renewed

        return grpc.dynamic_ssl_server_credentials(self._configuration(), newest, require_client_authentication=True)

    def reload(self) -> bool:
        """Read files that were replaced; whether anything has changed. What cannot be used is logged once."""
        stamps = [file_stamp(path) for path in self._paths[:3]]
        changed = False
        try:
            if stamps != self._seen:
                self._seen = stamps
                self._reload_certificate()
                changed = True
            found = self._revocation_file.read_if_changed(time.time())
            if found is not None:
                self._verifier.revocations = found
                changed = True
        except CredentialsError as error:
            log.error("the credentials in use stay: %s", error)
        return changed

    def _reload_certificate(self) -> None:
        fresh = Credentials.load(*self._paths, self.name, now=time.time())
        if fresh.ca_pem != self.credentials.ca_pem:
            raise CredentialsError(f"{self._paths[2]} is another authority: start the peer again to change over to it")
        self.credentials = fresh
        self._renewed = self._configuration()

    def _configuration(self) -> Any:
        own = self.credentials
        return grpc.ssl_server_certificate_configuration([(own.key_pem, own.cert_pem)], own.ca_pem)
