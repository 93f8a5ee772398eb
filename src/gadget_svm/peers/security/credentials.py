"""A peer's own credentials, and the check of the certificates and signatures of others.

Owns every check of a certificate. Makes and writes none (`gadget_svm.authority` does), opens no connection, and reads
no clock: ``now`` is the time of day in seconds since 1970.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gadget_svm.peers.names import NAME
from gadget_svm.peers.security.errors import BAD, CredentialsError, UntrustedError, day, read_file, require
from gadget_svm.peers.security.revocation import RevocationFile, Revocations
from gadget_svm.peers.wire.limits import CERTIFICATE_BYTES

CONTEXT = b"gadget-svm peer signature 2\0"
"""Precedes all that is signed, so that no signature of a peer can be taken for one of TLS."""


@dataclass(frozen=True)
class Credentials:
    """A peer's certificate and key, and its authority's certificate, all checked against each other."""

    name: str
    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    ca_pem: bytes = field(repr=False)
    private_key: ec.EllipticCurvePrivateKey = field(repr=False)
    authority: x509.Certificate = field(repr=False)
    serial: int
    not_after: float  # the earlier end of the certificate's and the authority's
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(
        cls, cert: Path, key: Path, ca: Path, revoked: Path, expect: str | None = None, *, now: float
    ) -> "Credentials":
        """Read the four files of a peer; a `CredentialsError` names the file that is wrong, and the fix."""
        cert_pem, key_pem, ca_pem = read_file(cert, "cert"), read_file(key, "key"), read_file(ca, "ca")
        ours, authority = _certificate(cert, "cert", cert_pem), _certificate(ca, "ca", ca_pem)
        require(
            not _is_authority(ours), f"{cert} (tls.cert) is an authority's certificate: name the peer's own, NAME.pem"
        )
        is_root = _is_authority(authority) and _issued_by(authority, authority)
        require(is_root, f"{ca} (tls.ca) is not an authority's certificate: name ca.pem")
        private = _private_key(key, key_pem)
        belongs = private.public_key() == ours.public_key()
        require(belongs, f"{key} (tls.key) is not the key of {cert}: copy both from one run of 'gadget certs issue'")
        _check_dates(ca, authority, now, "make a new authority with 'gadget certs init' and issue again")
        together = "copy both from one folder that 'gadget certs issue' wrote"
        require(_issued_by(ours, authority), f"{cert} was not issued by the authority of {ca}: {together}")
        name, others = _names(ours)
        require(bool(name), f"{cert} names no peer: issue it with 'gadget certs issue NAME'")
        hosts = "".join(f" --host {host}" for host in others)  # a new certificate needs the same
        again = f"issue a new one with 'gadget certs issue {name} --overwrite{hosts}'"
        _check_dates(cert, ours, now, again)
        is_revoked = ours.serial_number in RevocationFile(revoked, authority).read(now).serials
        require(not is_revoked, f"{cert} ({name}) is revoked: if this peer may take part again, {again}")
        require(
            expect in (None, name),
            f"{cert} is the certificate of {name!r}, but the peer is called {expect!r}: set peer.name to {name!r}, "
            f"or 'gadget certs issue {expect}{hosts}'",
        )
        end = min(ours.not_valid_after_utc, authority.not_valid_after_utc).timestamp()
        exposed = f"{key} may be read by others on this machine: chmod 600 {key}"
        warnings = (exposed,) if key.stat().st_mode & 0o077 else ()
        return cls(name, cert_pem, key_pem, ca_pem, private, authority, ours.serial_number, end, warnings)

    def sign(self, data: bytes) -> bytes:
        """Sign with ECDSA over SHA-256, in a context of our own."""
        return self.private_key.sign(CONTEXT + data, ec.ECDSA(hashes.SHA256()))


def address_problem(cert: Path, address: str) -> str:
    """Return what is wrong if a certificate was not issued for the host of an address; empty if it was."""
    name, hosts = _names(_certificate(cert, "cert", read_file(cert, "cert")))
    host = address.rpartition(":")[0].strip("[]")
    if host in (name, *hosts):
        return ""
    again = "".join(f" --host {each}" for each in (*hosts, host))
    return (
        f"{cert} does not cover the address {address} (it is for {', '.join([name, *hosts])}), so that no peer can "
        f"join at this address: correct [peer] address, or issue the certificate again with 'gadget certs issue {name} "
        f"--overwrite{again}'"
    )


class Identity(NamedTuple):
    """What a certificate of our authority says, and its key."""

    name: str
    serial: int
    not_before: float
    not_after: float
    key: ec.EllipticCurvePublicKey


class Verifier:
    """Checks the certificates of others. Remembers the ``size`` good ones used last; for one thread."""

    def __init__(self, authority: x509.Certificate, revocations: Revocations, *, size: int = 4096) -> None:
        self.revocations = revocations
        self._authority = authority
        self.examine = lru_cache(size)(self._examine)  # it does not remember errors

    def check(self, pem: bytes, now: float) -> Identity:
        """Return whose certificate this is if it is valid now; otherwise raise an `UntrustedError`."""
        known = self.examine(pem)
        if not known.not_before <= now <= known.not_after:
            state = "expired" if now > known.not_after else "is not valid yet: are both clocks right?"
            raise UntrustedError("expired", f"the certificate of {known.name!r} {state}", known.name)
        if known.serial in self.revocations.serials:
            raise UntrustedError("revoked", f"the certificate of {known.name!r} is revoked", known.name)
        return known

    def check_signature(self, pem: bytes, data: bytes, signature: bytes, now: float) -> Identity:
        """Return whose certificate this is if it is valid and its key has signed the data."""
        known = self.check(pem, now)
        try:
            known.key.verify(signature, CONTEXT + data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise UntrustedError("stranger", f"the signature is not by {known.name!r}") from None
        return known

    def _examine(self, pem: bytes) -> Identity:
        """The slow part, once for each certificate."""
        if len(pem) > CERTIFICATE_BYTES:
            raise UntrustedError("stranger", f"a certificate of {len(pem):,} bytes")
        try:
            cert = x509.load_pem_x509_certificate(pem)
            ours, key = _issued_by(cert, self._authority) and not _is_authority(cert), cert.public_key()
        except BAD as error:
            raise UntrustedError("stranger", f"not a certificate: {error}") from None
        if not ours or not isinstance(key, ec.EllipticCurvePublicKey):
            raise UntrustedError("stranger", "the certificate is not by our authority")
        if not (name := _names(cert)[0]):
            raise UntrustedError("nameless", "the certificate names no peer")
        end = min(cert.not_valid_after_utc, self._authority.not_valid_after_utc)
        start = max(cert.not_valid_before_utc, self._authority.not_valid_before_utc)
        return Identity(name, cert.serial_number, start.timestamp(), end.timestamp(), key)


def _certificate(path: Path, key: str, data: bytes) -> x509.Certificate:
    is_key = b"PRIVATE KEY" in data
    require(not is_key, f"{path} (tls.{key}) holds a private key: name the certificate here (a .pem file)")
    fix = "copy it again from what 'gadget certs issue' wrote"
    try:
        (found,) = x509.load_pem_x509_certificates(data)
        found.extensions  # noqa: B018 - parsed on use
    except BAD as error:
        raise CredentialsError(f"{path} (tls.{key}) does not hold exactly one certificate: {fix}") from error
    return found


def _private_key(path: Path, data: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(data, password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    except BAD:
        pass
    raise CredentialsError(
        f"{path} (tls.key) holds no private key that can be read: name NAME.key of 'gadget certs issue'"
    )


def _check_dates(path: Path, cert: x509.Certificate, now: float, fix: str) -> None:
    start, end = cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()
    require(now <= end, f"{path} expired on {day(end)}: {fix}")
    require(now >= start, f"{path} is valid only from {day(start)}: is this machine's clock right ({day(now)})?")


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


def _names(cert: x509.Certificate) -> tuple[str, list[str]]:
    """Return the peer's name, or an empty text without one, and the hosts that the certificate was issued for.

    The name is the only common name, has the form of a peer's name, and is one of the DNS names.
    """
    common = [str(each.value) for each in cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "", []
    hosts = names.get_values_for_type(x509.DNSName)
    if len(common) != 1 or not NAME.fullmatch(common[0]) or common[0] not in hosts:
        return "", hosts
    hosts.remove(common[0])
    return common[0], hosts + [str(each) for each in names.get_values_for_type(x509.IPAddress)]
