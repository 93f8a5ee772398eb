"""Revocation lists: reading one that our authority has signed, and taking up a newer one while a peer runs.

Decides which serial numbers are revoked; what follows from that is decided in `credentials`.
"""

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from gadget_svm.peers.security.errors import BAD, CredentialsError, read_file

FIX = "copy revoked.pem again from the authority's folder"


class Revocations(NamedTuple):
    """A revocation list that was accepted."""

    number: int
    serials: frozenset[int]


def parse_revocations(data: bytes, path: Path, authority: x509.Certificate, now: float) -> Revocations:
    """Check a revocation list; a `CredentialsError` says what is wrong with the file."""
    try:
        crl = x509.load_pem_x509_crl(data)
        key = authority.public_key()
        signed = isinstance(key, ec.EllipticCurvePublicKey) and crl.is_signature_valid(key)
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        serials = frozenset(entry.serial_number for entry in crl)
    except (*BAD, x509.ExtensionNotFound) as error:
        raise CredentialsError(f"{path} (tls.revoked) is not a revocation list, or a damaged one: {FIX}") from error
    if not signed or crl.issuer != authority.subject:
        raise CredentialsError(f"{path} (tls.revoked) is not signed by our authority: {FIX}")
    if crl.next_update_utc is None or now > crl.next_update_utc.timestamp():
        raise CredentialsError(f"{path} (tls.revoked) has expired: {FIX}; 'gadget certs revoke NAME' renews it there")
    return Revocations(number, serials)


class RevocationFile:
    """A revocation list on disk that may be replaced by a newer one."""

    def __init__(self, path: Path, authority: x509.Certificate) -> None:
        self.path, self._authority = path, authority
        self._seen: tuple[int, int, int] | None = None
        self._number = -1

    def read(self, now: float) -> Revocations:
        """Read the list, whether or not it has changed."""
        self._seen = self._stamp()
        found = parse_revocations(read_file(self.path, "revoked"), self.path, self._authority, now)
        if found.number < self._number:
            raise CredentialsError(
                f"{self.path} is older (number {found.number}) than the revocation list in use (number "
                f"{self._number}), which stays: copy the authority's newest"
            )
        self._number = found.number
        return found

    def read_if_changed(self, now: float) -> Revocations | None:
        """Read the list if the file has changed since it was read last.

        A list that is damaged or older is a `CredentialsError`, once; the list in use stays in use.
        """
        return None if self._stamp() == self._seen else self.read(now)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
