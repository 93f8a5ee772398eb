"""A local certificate authority: issues, records and revokes the certificates of peers. Owns the files of its folder.

This module signs and writes; `peers.security.credentials` checks. The folder holds ca.pem, ca.key (0600), revoked.pem
(an X.509 revocation list) and issued.json, the record of every certificate ever issued. A certificate is recorded
before it is written, so every existing certificate can be revoked.
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

from gadget_svm.authority import issued
from gadget_svm.authority.issued import CA, CA_KEY, PRIVATE, PUBLIC, REVOKED, Record
from gadget_svm.core.lookup import unknown
from gadget_svm.core.state_file import write_atomically
from gadget_svm.peers.names import check_host, check_name, ip_address
from gadget_svm.peers.security.errors import BAD, CredentialsError, day, require

RESERVED = ("ca", "revoked")  # NAME.pem would be a file of the authority
CLOCK_TOLERANCE = timedelta(hours=1)  # certificates begin that much earlier: the clocks of sites differ
KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


Rights = list[tuple[x509.ExtensionType, bool]]


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
            fix = "name the authority's folder (--ca), or make one: 'gadget certs init'"
            raise CredentialsError(f"{error.filename} is missing: {fix}") from error
        except BAD as error:
            fix = "restore it from a backup"
            raise CredentialsError(f"{folder}: {CA} or {CA_KEY} is damaged ({error}): {fix}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != cert.public_key():
            raise CredentialsError(f"{folder}: {CA_KEY} is not the key of {CA}: restore both from one backup")
        return cls(folder, cert, key)

    def check_dates(self, start: datetime, end: datetime) -> None:
        """Refuse to sign if the authority has expired, or expires before ``end``."""
        last = self.cert.not_valid_after_utc
        when = day(last.timestamp())
        again = "make a new one with 'gadget certs init DIR' and issue every certificate again"
        require(start <= last, f"the authority in {self.folder} expired on {when}: {again}")
        fix = f"--days {(last - start).days} at most, or make a new authority"
        require(end <= last, f"the authority expires on {when}, before {(end - start).days} days are over: {fix}")


def init_ca(
    folder: Path, *, name: str = "gadget-svm", days: int = 3650, overwrite: bool = False, now: float | None = None
) -> Authority:
    """Make an authority with an empty revocation list.

    ``overwrite`` replaces an existing authority. Certificates of that authority are no longer accepted.
    """
    require(1 <= len(name) <= 64, f"an authority's name has 1 to 64 characters, got {len(name)}")
    start, end = _dates(now, days)
    issued.make_folder(folder)
    there = [file for file in (CA, CA_KEY, REVOKED, issued.RECORD) if (folder / file).exists()]
    if there and not overwrite:
        raise FileExistsError(
            f"{folder} already holds {', '.join(there)}: name another folder, or replace that authority with "
            "--overwrite (no certificate it issued will be accepted any more)"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    basic, usage = x509.BasicConstraints(ca=True, path_length=0), _usage("key_cert_sign", "crl_sign")
    cert = _signed(name, key.public_key(), (start, end), None, key, [(basic, True), (usage, True)])
    authority = Authority(folder, cert, key)
    with issued.locked(folder):
        write_atomically(folder / CA_KEY, _key_pem(key), PRIVATE)
        write_atomically(folder / CA, _pem(cert), PUBLIC)
        issued.write_record(folder, 0, [])
        (folder / REVOKED).unlink(missing_ok=True)  # of a former authority
        _publish(authority, start)
    return authority


def issue(
    folder: Path, name: str, hosts: Sequence[str] = (), *, days: int = 365, out: Path | None = None,
    overwrite: bool = False, now: float | None = None,
) -> Issued:  # fmt: skip
    """Issue a certificate for ``name``. Write it, its key, ca.pem and revoked.pem to ``out`` (FOLDER/peers/NAME)."""
    check_name(name)
    require(name not in RESERVED, f"a peer may not be called {name!r}: {name}.pem is a file of the authority")
    reached = tuple(dict.fromkeys(check_host(host) for host in hosts))
    start, end = _dates(now, days)
    authority = Authority.load(folder)
    authority.check_dates(start, end)
    target = folder / "peers" / name if out is None else out
    issued.make_folder(target)
    _check_free(target, name, _pem(authority.cert), overwrite)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _signed(
        name, key.public_key(), (start, end), authority.cert.subject, authority.key, _peer_rights(name, reached)
    )
    dates = cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()
    paths = [target / file for file in (f"{name}.pem", f"{name}.key", CA, REVOKED)]
    with issued.locked(folder):
        number, former = issued.read_record(folder)
        _check_hosts(name, reached, former, start.timestamp())
        issued.write_record(folder, number, [*former, Record(name, cert.serial_number, reached, *dates)])
        if _current_list(authority) is None:
            _publish(authority, start)
        contents = (_pem(cert), _key_pem(key), _pem(authority.cert), (folder / REVOKED).read_bytes())
        for path, content in zip(paths, contents, strict=True):
            write_atomically(path, content, PRIVATE if path.suffix == ".key" else PUBLIC)
    return Issued(name, cert.serial_number, dates[1], *paths)


def revoke(folder: Path, name: str, *, keep_newest: bool = False, now: float | None = None) -> list[int]:
    """Revoke all unexpired certificates of ``name``, sign a new revoked.pem, and return the newly revoked serials.

    ``keep_newest`` does not revoke the certificate issued last; use it after a renewal. The list is always written
    again, which repairs a list that is missing, or out of date after a crash.
    """
    authority, moment = Authority.load(folder), _when(now)
    authority.check_dates(moment, moment)
    at = moment.timestamp()
    with issued.locked(folder):
        number, former = issued.read_record(folder)
        names = {record.name: record for record in former}
        require(name in names, unknown("peer", name, names))
        valid = [record.serial for record in former if record.name == name and record.state(at) == "valid"]
        fresh = valid[:-1] if keep_newest else valid  # in the order of issue
        marked = [replace(record, revoked=at) if record.serial in fresh else record for record in former]
        issued.write_record(folder, number, marked)
        _publish(authority, moment)
    return fresh


def records(folder: Path) -> list[Record]:
    """Return every certificate that the authority has issued, oldest first."""
    return issued.read_record(folder)[1]


def _when(now: float | None) -> datetime:
    return datetime.fromtimestamp(int(time.time() if now is None else now), UTC)


def _dates(now: float | None, days: int) -> tuple[datetime, datetime]:
    require(1 <= days <= 36_500, f"a certificate is valid for 1 to 36500 days, got {days}")
    start = _when(now)
    return start, start + timedelta(days=days)


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


def _check_hosts(name: str, hosts: Sequence[str], former: Sequence[Record], now: float) -> None:
    """Refuse hosts that are names of other peers: the certificate could be used in their place."""
    for other in former:
        if other.name != name and other.state(now) == "valid":
            its, fix = other.name, "leave it out, or revoke that peer first"
            require(its not in hosts, f"host {its!r} is the name of another peer: {fix}")
            require(name not in other.hosts, f"{name!r} is a host in the certificate of {its!r}: choose another name")


def _peer_rights(name: str, hosts: Sequence[str]) -> Rights:
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    places = [(host, ip_address(host)) for host in hosts if host != name]
    names = [x509.DNSName(host) if at is None else x509.IPAddress(at) for host, at in places]
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True), (_usage("digital_signature"), True),
        (x509.ExtendedKeyUsage(purposes), False), (x509.SubjectAlternativeName([x509.DNSName(name), *names]), False),
    ]  # fmt: skip


def _signed(
    name: str, public: ec.EllipticCurvePublicKey, dates: tuple[datetime, datetime], issuer: x509.Name | None,
    key: ec.EllipticCurvePrivateKey, rights: Rights,
) -> x509.Certificate:  # fmt: skip
    """Return a certificate. ``issuer`` is None if it signs itself. ``rights``: extensions, and which are critical."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(dates[0] - CLOCK_TOLERANCE)
        .not_valid_after(dates[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    for extension, critical in rights:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{kind: kind in allowed for kind in KEY_USAGES})


def _publish(authority: Authority, now: datetime) -> None:
    """Sign the list of all revoked certificates. Those in the former list stay, even if the record is older."""
    folder = authority.folder
    number, former = issued.read_record(folder)
    revoked = {record.serial: _when(record.revoked) for record in former if record.revoked is not None}
    current = _current_list(authority)
    if current is not None:
        revoked = {entry.serial_number: entry.revocation_date_utc for entry in current} | revoked
        number = max(number, current.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.cert.subject)
        .last_update(now)
        .next_update(authority.cert.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number + 1), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    for serial, moment in revoked.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(moment).build()
        builder = builder.add_revoked_certificate(entry)
    write_atomically(folder / REVOKED, _pem(builder.sign(authority.key, hashes.SHA256())), PUBLIC)
    issued.write_record(folder, number + 1, former)


def _current_list(authority: Authority) -> x509.CertificateRevocationList | None:
    """Return the current list, or None if it is lost or damaged. Then a new list is made from the record."""
    try:
        crl = x509.load_pem_x509_crl((authority.folder / REVOKED).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return crl if crl.is_signature_valid(authority.key.public_key()) else None


def _pem(signed: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    return signed.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, none)
