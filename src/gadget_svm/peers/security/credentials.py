"""Who a peer is and whom it believes: its own credentials, and the judgement of the certificates others show.

Owns every check of a certificate; makes and writes none (`certs` does), and opens no connection.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gadget_svm.peers.certs import common_name
from gadget_svm.peers.issued import day
from gadget_svm.peers.naming import NAME

CONTEXT = b"gadget-svm peer signature 1\0"  # before all that is signed: no signature of ours is one of TLS
LARGEST_PEM = 16_384
BAD = (ValueError, TypeError, UnsupportedAlgorithm)  # what cryptography says of damaged bytes
log = logging.getLogger(__name__)


class IdentityError(ValueError):
    """Why a peer cannot start with these files, and what to do."""


class Refused(Exception):  # noqa: N818 - what happened, not what is wrong
    """A certificate or signature that is not believed: "expired", "revoked", "stranger" or "nameless"."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


@dataclass(frozen=True)
class Identity:
    """A peer's own credentials, all checked against each other."""

    name: str
    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    ca_pem: bytes = field(repr=False)
    serial: int
    not_after: float  # the earlier end of the certificate's and the authority's
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(
        cls, cert: Path, key: Path, ca: Path, revoked: Path, expect: str | None = None, *, now: float | None = None
    ) -> "Identity":
        """Read the four files of a peer; an IdentityError names the file that is wrong and the way out."""
        moment = time.time() if now is None else now
        cert_pem, key_pem, ca_pem = (_read(*file) for file in ((cert, "cert"), (key, "key"), (ca, "ca")))
        ours, authority = _certificate(cert, "cert", cert_pem), _certificate(ca, "ca", ca_pem)
        _check_kinds(cert, ours, ca, authority)
        _check_key(key, key_pem, cert, ours)
        _check_dates(ca, authority, moment, "make a new authority with 'gadget certs init' and issue again")
        if not _issued_by(ours, authority):
            raise IdentityError(
                f"{cert} was not issued by the authority of {ca}: copy both from one folder that 'gadget certs issue' "
                "wrote"
            )
        name = _name(ours)
        if name is None:
            raise IdentityError(f"{cert} names no peer: issue it with 'gadget certs issue NAME'")
        hosts = "".join(f" --host {host}" for host in _hosts(ours, name))
        again = f"issue a new one with 'gadget certs issue {name} --overwrite{hosts}'"
        _check_dates(cert, ours, moment, again)
        if ours.serial_number in read_revoked(revoked, authority, moment).serials:
            raise IdentityError(f"{cert} ({name}) is revoked: if this peer may take part again, {again}")
        if expect is not None and name != expect:
            raise IdentityError(
                f"{cert} is the certificate of {name!r}, but the peer is called {expect!r}: set peer.name to {name!r}, "
                f"or 'gadget certs issue {expect}{hosts}'"
            )
        end = min(ours.not_valid_after_utc, authority.not_valid_after_utc).timestamp()
        return cls(name, cert_pem, key_pem, ca_pem, ours.serial_number, end, _exposed(key))

    @property
    def expired(self) -> bool:
        """Whether others refuse it by now."""
        return time.time() > self.not_after

    def server_credentials(self, begun: Callable[[], None] = lambda: None) -> Any:
        """For a gRPC server that asks every client for a certificate of our authority.

        ``begun`` is called, in a thread of gRPC's, as each connection begins.
        """
        import grpc

        shown = grpc.ssl_server_certificate_configuration([(self.key_pem, self.cert_pem)], self.ca_pem)

        def same() -> None:
            """None: the certificates have not changed."""
            begun()

        return grpc.dynamic_ssl_server_credentials(shown, same, require_client_authentication=True)

    def channel_credentials(self) -> Any:
        """For a gRPC channel that shows our certificate and trusts our authority alone."""
        import grpc

        return grpc.ssl_channel_credentials(self.ca_pem, self.key_pem, self.cert_pem)

    def sign(self, data: bytes) -> bytes:
        """ECDSA over SHA-256, in a context of our own."""
        return self._key.sign(CONTEXT + data, ec.ECDSA(hashes.SHA256()))

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.key_pem, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # load saw to it
        return key


class Revocations(NamedTuple):
    """A revocation list that was believed."""

    number: int
    serials: frozenset[int]


class _Known(NamedTuple):
    """A certificate of our authority: what of it does not change."""

    name: str
    serial: int
    not_before: float
    not_after: float
    key: ec.EllipticCurvePublicKey


class Verifier:
    """Judges the certificates of others. Remembers the ``size`` used last; for one thread, such as an event loop's."""

    def __init__(self, identity: Identity, revoked: Path, *, size: int = 4096, now: float | None = None) -> None:
        self.identity, self.path, self.size = identity, revoked, size
        self._authority = x509.load_pem_x509_certificate(identity.ca_pem)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._seen = self._stamp()
        self._revoked = read_revoked(revoked, self._authority, time.time() if now is None else now)

    def name_of(self, pem: bytes, now: float | None = None) -> str:
        """The name of the peer whose certificate this is, good at this moment; else Refused."""
        return self._judge(pem, now).name

    def serial_of(self, name: str) -> int:
        """The number of the certificate that was last shown in this name; 0 if none was."""
        return next((known.serial for known in reversed(self._known.values()) if known.name == name), 0)

    def has_expired(self, pem: bytes, now: float | None = None) -> bool:
        """Whether a certificate that was good when it was shown is so no more. To ask is not to be shown it again."""
        known = self._known.get(pem) or self._examine(pem)
        return (time.time() if now is None else now) > known.not_after

    def is_revoked(self, serial: int) -> bool:
        """Whether the list in use has it."""
        return serial in self._revoked.serials

    def check_signature(
        self, pem: bytes, expected_name: str, data: bytes, signature: bytes, now: float | None = None
    ) -> None:
        """Refused unless ``expected_name`` signed ``data`` with the key of this certificate."""
        known = self._judge(pem, now)
        if known.name != expected_name:
            raise Refused("stranger", f"the certificate of {known.name!r} was shown in the name of {expected_name!r}")
        try:
            known.key.verify(signature, CONTEXT + data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise Refused("stranger", f"the signature is not by {expected_name!r}") from None

    def reload(self, now: float | None = None) -> bool:
        """Take up a revocation list that has changed on disk. One that is damaged or older leaves the present one."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            fresh = read_revoked(self.path, self._authority, time.time() if now is None else now)
        except IdentityError as error:
            log.error("the revocation list in use stays: %s", error)
            return False
        if fresh.number < self._revoked.number:
            log.error(
                "the revocation list in use stays: %s is older (number %d) than it (%d): copy the authority's newest",
                self.path,
                fresh.number,
                self._revoked.number,
            )
            return False
        self._revoked = fresh
        if self.identity.serial in fresh.serials:
            log.error("our own certificate (%s) is revoked: the others will refuse us", self.identity.name)
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _judge(self, pem: bytes, now: float | None) -> _Known:
        known = self._known.get(pem)
        if known is None:
            known = self._examine(pem)
            self._known[pem] = known
            if len(self._known) > self.size:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(pem)
        moment = time.time() if now is None else now
        if not known.not_before <= moment <= known.not_after:
            state = "expired" if moment > known.not_after else "is not valid yet: are both clocks right?"
            raise Refused("expired", f"the certificate of {known.name!r} {state}")
        if known.serial in self._revoked.serials:
            raise Refused("revoked", f"the certificate of {known.name!r} is revoked")
        return known

    def _examine(self, pem: bytes) -> _Known:
        """The slow part, once for each certificate: only those of our authority are remembered."""
        if len(pem) > LARGEST_PEM:
            raise Refused("stranger", f"a certificate of {len(pem):,} bytes")
        try:
            cert = x509.load_pem_x509_certificate(pem)
            ours, key = _issued_by(cert, self._authority) and not _is_authority(cert), cert.public_key()
        except BAD as error:
            raise Refused("stranger", f"not a certificate: {error}") from None
        if not ours or not isinstance(key, ec.EllipticCurvePublicKey):
            raise Refused("stranger", "the certificate is not of our authority")
        name = _name(cert)
        if name is None:
            raise Refused("nameless", "the certificate names no peer")
        end = min(cert.not_valid_after_utc, self._authority.not_valid_after_utc)
        start = max(cert.not_valid_before_utc, self._authority.not_valid_before_utc)
        return _Known(name, cert.serial_number, start.timestamp(), end.timestamp(), key)


def read_revoked(path: Path, authority: x509.Certificate, now: float) -> Revocations:
    """The revocation list, if our authority signed it and it still holds; else an IdentityError: it has no default."""
    data = _read(path, "revoked")
    fix = "copy revoked.pem from the authority's folder"
    try:
        crl = x509.load_pem_x509_crl(data)
        key = authority.public_key()
        signed = isinstance(key, ec.EllipticCurvePublicKey) and crl.is_signature_valid(key)
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        serials = frozenset(entry.serial_number for entry in crl)
    except (*BAD, x509.ExtensionNotFound) as error:
        raise IdentityError(f"{path} (tls.revoked) is not a revocation list, or a damaged one: {fix}") from error
    if not signed or crl.issuer != authority.subject:
        raise IdentityError(f"{path} (tls.revoked) is not signed by our authority: {fix} that issued the certificate")
    if crl.next_update_utc is None or now > crl.next_update_utc.timestamp():
        raise IdentityError(f"{path} (tls.revoked) has expired: {fix}; 'gadget certs revoke NAME' renews it there")
    return Revocations(number, serials)


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise IdentityError(
            f"{path} (tls.{key}) does not exist: 'gadget certs issue NAME' writes it, tls.{key} says where it is"
        ) from error
    except OSError as error:
        raise IdentityError(
            f"{path} (tls.{key}) cannot be read ({error.strerror}): change its owner or mode"
        ) from error


def _certificate(path: Path, key: str, data: bytes) -> x509.Certificate:
    if b"PRIVATE KEY" in data:
        raise IdentityError(f"{path} (tls.{key}) holds a private key: name the certificate here (a .pem file)")
    try:
        (found,) = x509.load_pem_x509_certificates(data)
        found.extensions  # noqa: B018 - parsed on use
    except BAD as error:
        raise IdentityError(
            f"{path} (tls.{key}) does not hold exactly one certificate: copy it again from what 'gadget certs issue' "
            "wrote"
        ) from error
    return found


def _check_kinds(cert: Path, ours: x509.Certificate, ca: Path, authority: x509.Certificate) -> None:
    if _is_authority(ours):
        raise IdentityError(f"{cert} (tls.cert) is an authority's certificate: name the peer's own, NAME.pem")
    if not _is_authority(authority) or not _issued_by(authority, authority):
        raise IdentityError(f"{ca} (tls.ca) is not an authority's certificate: name ca.pem")


def _check_key(path: Path, data: bytes, cert: Path, ours: x509.Certificate) -> None:
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except BAD as error:
        raise IdentityError(
            f"{path} (tls.key) holds no private key that can be read: name NAME.key of 'gadget certs issue'"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ours.public_key():
        raise IdentityError(
            f"{path} (tls.key) is not the key of {cert}: copy both from one run of 'gadget certs issue'"
        )


def _check_dates(path: Path, cert: x509.Certificate, now: float, fix: str) -> None:
    start, end = cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()
    if now > end:
        raise IdentityError(f"{path} expired on {day(end)}: {fix}")
    if now < start:
        raise IdentityError(f"{path} is valid only from {day(start)}: is this machine's clock right ({day(now)})?")


def _issued_by(cert: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(authority)
    except (*BAD, InvalidSignature):
        return False
    return True


def _is_authority(cert: x509.Certificate) -> bool:
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _name(cert: x509.Certificate) -> str | None:
    """The common name, if it is a peer's and one of the DNS names."""
    name = common_name(cert.subject)
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    return name if NAME.fullmatch(name) and name in names.get_values_for_type(x509.DNSName) else None


def _hosts(cert: x509.Certificate, name: str) -> list[str]:
    """What it was issued for beside its name: a certificate in its place needs the same."""
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*(host for host in names.get_values_for_type(x509.DNSName) if host != name), *addresses]


def _exposed(key: Path) -> tuple[str, ...]:
    if key.stat().st_mode & 0o077:
        text = f"{key} may be read by others on this machine: chmod 600 {key}"
        log.warning(text)
        return (text,)
    return ()
