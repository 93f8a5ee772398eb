"""A local certificate authority: issues, records and revokes the certificates of peers. Owns the files of its folder.

It signs and writes; `credentials` checks. The folder holds ca.pem, ca.key (0600),
revoked.pem (an X.509 revocation list) and issued.json, the record of every certificate ever issued. A certificate is
recorded before it is written, so none exists that could not be revoked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gadget_svm.core.lookup import unknown
from gadget_svm.peers.names import check_host, check_name, ip_address
from gadget_svm.peers.security.errors import day
from gadget_svm.peers.security.issued import (
    CA,
    CA_KEY,
    PRIVATE,
    PUBLIC,
    RECORD,
    REVOKED,
    CertError,
    Record,
    locked,
    make_folder,
    read_record,
    write_file,
    write_record,
)

RESERVED = ("ca", "revoked")  # NAME.pem would be a file of the authority
CLOCK_TOLERANCE = timedelta(hours=1)  # certificates begin that much earlier: the clocks of sites differ


@dataclass(frozen=True)
class Issued:
    """A new certificate, and its files."""

    name: str
    serial: int
    not_after: float
    cert: Path
    key: Path
    ca: Path
    revoked: Path


@dataclass(frozen=True)
class Authority:
    """An authority, read from its folder and able to sign."""

    folder: Path
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """Read ca.pem and ca.key; they must belong together."""
        try:
            cert = x509.load_pem_x509_certificate((folder / CA).read_bytes())
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
        except FileNotFoundError as error:
            raise CertError(
                f"{error.filename} is missing: name the authority's folder (--ca), or make one: 'gadget certs init'"
            ) from error
        except (ValueError, TypeError) as error:
            raise CertError(f"{folder}: {CA} or {CA_KEY} is damaged ({error}): restore it from a backup") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != cert.public_key():
            raise CertError(f"{folder}: {CA_KEY} is not the key of {CA}: restore both from one backup")
        return cls(folder, cert, key)

    def check_dates(self, now: float) -> None:
        """Refuse to sign if the authority has expired."""
        if now > self.cert.not_valid_after_utc.timestamp():
            raise CertError(
                f"the authority in {self.folder} expired on {day(self.cert.not_valid_after_utc.timestamp())}: make a "
                "new one with 'gadget certs init DIR' and issue every peer's certificate again"
            )


def init_ca(
    folder: Path, *, name: str = "gadget-svm", days: int = 3650, overwrite: bool = False, now: float | None = None
) -> Authority:
    """Make an authority with an empty revocation list.

    ``overwrite`` replaces one: no certificate that it issued is accepted any more.
    """
    _check_days(days)
    if not 1 <= len(name) <= 64:
        raise CertError(f"an authority's name has 1 to 64 characters, got {len(name)}")
    make_folder(folder)
    there = [file for file in (CA, CA_KEY, REVOKED, RECORD) if (folder / file).exists()]
    if there and not overwrite:
        raise FileExistsError(
            f"{folder} already holds {', '.join(there)}: name another folder, or replace that authority with "
            "--overwrite (no certificate it issued will be accepted any more)"
        )
    start = _when(now)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    cert = (
        _builder(subject, subject, key.public_key(), key.public_key(), start, start + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(folder, cert, key)
    with locked(folder):
        write_file(folder / CA_KEY, _key_pem(key), PRIVATE)
        write_file(folder / CA, _pem(cert), PUBLIC)
        write_record(folder, 0, [])
        (folder / REVOKED).unlink(missing_ok=True)  # of a former authority
        _publish(authority, start.timestamp())
    return authority


def issue(
    folder: Path, name: str, hosts: Sequence[str] = (), *, days: int = 365, out: Path | None = None,
    overwrite: bool = False, now: float | None = None,
) -> Issued:  # fmt: skip
    """Issue a certificate for ``name``, in ``out`` (FOLDER/peers/NAME), with its key, ca.pem and revoked.pem."""
    check_name(name)
    if name in RESERVED:
        raise CertError(f"a peer may not be called {name!r}: {name}.pem is a file of the authority")
    _check_days(days)
    reached = tuple(dict.fromkeys(check_host(host) for host in hosts))
    authority, start = Authority.load(folder), _when(now)
    authority.check_dates(start.timestamp())
    end = start + timedelta(days=days)
    if end > authority.cert.not_valid_after_utc:
        left = (authority.cert.not_valid_after_utc - start).days
        raise CertError(
            f"the authority expires on {day(authority.cert.not_valid_after_utc.timestamp())}, before {days} days are "
            f"over: --days {left} at most, or make a new authority"
        )
    target = folder / "peers" / name if out is None else out
    make_folder(target)
    _check_free(target, name, _pem(authority.cert), overwrite)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _peer_cert(authority, name, reached, key.public_key(), start, end)
    with locked(folder):
        number, records = read_record(folder)
        _check_hosts(name, reached, records, start.timestamp())
        dates = cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()
        write_record(folder, number, [*records, Record(name, cert.serial_number, reached, *dates)])
        if _former_list(authority) is None:
            _publish(authority, start.timestamp())
        revoked = (folder / REVOKED).read_bytes()
    files = {f"{name}.key": _key_pem(key), f"{name}.pem": _pem(cert), CA: _pem(authority.cert), REVOKED: revoked}
    for file, data in files.items():
        write_file(target / file, data, PRIVATE if file.endswith(".key") else PUBLIC)
    paths = (target / file for file in (f"{name}.pem", f"{name}.key", CA, REVOKED))
    return Issued(name, cert.serial_number, dates[1], *paths)


def revoke(folder: Path, name: str, *, keep_newest: bool = False, now: float | None = None) -> list[int]:
    """Revoke all unexpired certificates of ``name``, sign a new revoked.pem, and return the newly revoked serials.

    ``keep_newest`` leaves out the one issued last, for use after a renewal. The list is always written again, which
    repairs one that was lost or left behind by a crash.
    """
    authority, moment = Authority.load(folder), _when(now).timestamp()
    authority.check_dates(moment)
    with locked(folder):
        number, records = read_record(folder)
        if all(record.name != name for record in records):
            raise CertError(unknown("peer", name, {record.name: record for record in records}))
        valid = [record.serial for record in records if record.name == name and record.state(moment) == "valid"]
        fresh = set(valid[:-1] if keep_newest else valid)  # in the order of issue
        marked = [replace(record, revoked=moment) if record.serial in fresh else record for record in records]
        write_record(folder, number, marked)
        _publish(authority, moment)
    return [record.serial for record in marked if record.serial in fresh]


def records(folder: Path) -> list[Record]:
    """Return every certificate that the authority has issued, oldest first."""
    return read_record(folder)[1]


def _when(now: float | None) -> datetime:
    return datetime.fromtimestamp(int(time.time() if now is None else now), UTC)


def _check_days(days: int) -> None:
    if not 1 <= days <= 36_500:
        raise CertError(f"a certificate is valid for 1 to 36500 days, got {days}")


def _check_free(target: Path, name: str, ca: bytes, overwrite: bool) -> None:
    """Refuse to replace files, except the revocation list of the same authority."""
    there = [file for file in (f"{name}.pem", f"{name}.key") if (target / file).exists()]
    foreign = (target / CA).exists() and (target / CA).read_bytes() != ca
    if foreign and (target / CA_KEY).exists():
        raise FileExistsError(f"{target} is the folder of another authority: name another one with --out")
    if foreign:
        there.append(f"{CA} of another authority")
    elif (target / REVOKED).exists() and not (target / CA).exists():
        there.append(f"{REVOKED} of unknown origin")
    if there and not overwrite:
        raise FileExistsError(
            f"{target} already holds {', '.join(there)}: name another folder with --out, or replace with --overwrite "
            "(the former certificate stays valid until it is revoked or expires)"
        )


def _check_hosts(name: str, hosts: Sequence[str], records: Sequence[Record], now: float) -> None:
    """Refuse hosts that are names of other peers: the certificate could be used in their place."""
    for other in records:
        if other.name == name or other.state(now) != "valid":
            continue
        if other.name in hosts:
            raise CertError(f"host {other.name!r} is the name of another peer: leave it out, or revoke that peer first")
        if name in other.hosts:
            raise CertError(f"{name!r} is a host in the certificate of {other.name!r}: choose another name")


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, issuer_public: ec.EllipticCurvePublicKey,
    start: datetime, end: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - CLOCK_TOLERANCE)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )


def _peer_cert(
    authority: Authority, name: str, hosts: Sequence[str], public: ec.EllipticCurvePublicKey, start: datetime,
    end: datetime,
) -> x509.Certificate:  # fmt: skip
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    found = [(host, ip_address(host)) for host in hosts if host != name]
    names = [x509.DNSName(host) if at is None else x509.IPAddress(at) for host, at in found]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return (
        _builder(subject, authority.cert.subject, public, authority.key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name), *names]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _usage(**allowed: bool) -> x509.KeyUsage:
    kinds = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{kind: allowed.get(kind, False) for kind in kinds})


def _publish(authority: Authority, now: float) -> None:
    """Sign the list of all revoked certificates. Those in the former list stay, even if the record is older."""
    folder = authority.folder
    number, records = read_record(folder)
    revoked = {record.serial: record.revoked for record in records if record.revoked is not None}
    former = _former_list(authority)
    if former is not None:
        revoked = {entry.serial_number: entry.revocation_date_utc.timestamp() for entry in former} | revoked
        number = max(number, former.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.cert.subject)
        .last_update(_when(now))
        .next_update(authority.cert.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number + 1), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    for serial, moment in revoked.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_when(moment)).build()
        builder = builder.add_revoked_certificate(entry)
    crl = builder.sign(authority.key, hashes.SHA256())
    write_file(folder / REVOKED, crl.public_bytes(serialization.Encoding.PEM), PUBLIC)
    write_record(folder, number + 1, records)


def _former_list(authority: Authority) -> x509.CertificateRevocationList | None:
    """Return the current list, or None if it is lost or damaged: then it is made from the record."""
    try:
        crl = x509.load_pem_x509_crl((authority.folder / REVOKED).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return crl if crl.is_signature_valid(authority.key.public_key()) else None


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, none)
