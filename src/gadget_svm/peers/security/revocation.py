"""Revocation lists: reading one that our authority has signed, and taking up a newer one while a peer runs.

Decides which serial numbers are revoked; what follows from that is decided in `credentials`.
"""

from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from gadget_svm.peers.security.errors import BAD, CredentialsError, read_file, require

FIX = "copy revoked.pem again from the authority's folder"


class Revocations(NamedTuple):
    """A revocation list that was accepted."""

    number: int
    serials: frozenset[int]


class RevocationFile:
    """A revocation list on disk that may be replaced by a newer one."""

    def __init__(self, path: Path, authority: x509.Certificate) -> None:
        self.path, self._authority = path, authority
        self._seen: tuple[int, int, int] | None = None
        self._number = -1

    def read(self, now: float) -> Revocations:
        """Read the list, whether or not it has changed; a `CredentialsError` says what is wrong with it."""
        self._seen = file_stamp(self.path)
        found = self._parse(read_file(self.path, "revoked"), now)
        require(
            found.number >= self._number,
            f"{self.path} is older (number {found.number}) than the revocation list in use (number {self._number}), "
            "which stays: copy the authority's newest",
        )
        self._number = found.number
        return found

    def read_if_changed(self, now: float) -> Revocations | None:
        """Read the list if the file has changed since it was read last.

        A list that is damaged or older is a `CredentialsError`, once; the list in use stays in use.
        """
        return None if file_stamp(self.path) == self._seen else self.read(now)

    def _parse(self, data: bytes, now: float) -> Revocations:
        where = f"{self.path} (tls.revoked)"
        try:
            crl = x509.load_pem_x509_crl(data)
            signed = crl.is_signature_valid(self._authority.public_key())  # type: ignore[arg-type]
            number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            serials = frozenset(entry.serial_number for entry in crl)
        except (*BAD, x509.ExtensionNotFound) as error:
            raise CredentialsError(f"{where} is not a revocation list, or a damaged one: {FIX}") from error
        require(signed and crl.issuer == self._authority.subject, f"{where} is not signed by our authority: {FIX}")
        valid = crl.next_update_utc is not None and now <= crl.next_update_utc.timestamp()
        require(valid, f"{where} has expired: {FIX}; 'gadget certs revoke NAME' renews it there")
        return Revocations(number, serials)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
