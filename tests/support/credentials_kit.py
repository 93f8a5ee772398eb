"""Authorities and certificates for tests of peers: a folder `ca` with peers a and b, and `foreign` with another a."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gadget_svm.authority import certificates as certs
from gadget_svm.peers.security.credentials import Credentials, Verifier
from gadget_svm.peers.security.revocation import RevocationFile

DAY = 86_400.0


def make_world(folder: Path) -> Path:
    """One authority with peers a and b, another one with a peer that is also called a."""
    certs.init_ca(folder / "ca")
    certs.init_ca(folder / "foreign")
    certs.issue(folder / "ca", "a", ["localhost", "127.0.0.1"])
    certs.issue(folder / "ca", "b")
    certs.issue(folder / "foreign", "a")
    return folder


def files(bundle: Path, name: str) -> dict[str, Path]:
    """The four files of a peer."""
    places = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"}
    return {key: bundle / file for key, file in places.items()}


def load(world: Path, name: str, authority: str = "ca", **options) -> Credentials:
    """The credentials of a peer, as of now."""
    return Credentials.load(**files(world / authority / "peers" / name, name), **{"now": time.time(), **options})


def make_verifier(world: Path, **options) -> Verifier:
    """What peer a accepts, with the authority's newest list."""
    authority = load(world, "a").authority
    return Verifier(authority, RevocationFile(world / "ca" / "revoked.pem", authority).read(time.time()), **options)


def signed_by_hand(world: Path, name: str, *, names: list[str], authority: bool = False, days: float = 1.0) -> bytes:
    """A certificate our authority would never make, with our authority's key."""
    signer = certs.Authority.load(world / "ca")
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(signer.cert.subject)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        alternative = x509.SubjectAlternativeName([x509.DNSName(text) for text in names])
        builder = builder.add_extension(alternative, critical=False)
    return builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
