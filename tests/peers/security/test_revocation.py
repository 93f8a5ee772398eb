"""Revocation lists: which are accepted, and taking up a newer one while a peer runs."""

import time
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from gadget_svm.authority import certificates as certs
from gadget_svm.peers.security.credentials import Verifier
from gadget_svm.peers.security.errors import CredentialsError, UntrustedError
from gadget_svm.peers.security.revocation import RevocationFile
from support.credentials_kit import files, load


def test_a_list_that_has_expired_is_refused(own):
    """One of an authority that writes shorter ones than ours does."""
    signer, now = certs.Authority.load(own / "ca"), datetime.now(UTC)
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.cert.subject)
        .last_update(now - timedelta(days=2))
        .next_update(now - timedelta(days=1))
        .add_extension(x509.CRLNumber(7), critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    path = files(own / "ca" / "peers" / "a", "a")["revoked"]
    path.write_bytes(crl.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(CredentialsError, match="has expired"):
        load(own, "a")


def test_a_list_that_was_changed_by_others_is_refused(own):
    path = files(own / "ca" / "peers" / "a", "a")["revoked"]
    crl = x509.load_pem_x509_crl(path.read_bytes())
    raw = bytearray(crl.public_bytes(serialization.Encoding.DER))
    at = bytes(raw).index(crl.tbs_certlist_bytes) + len(crl.tbs_certlist_bytes) - 1  # the number's last byte
    raw[at] ^= 1
    forged = x509.load_der_x509_crl(bytes(raw))
    path.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(CredentialsError, match="not signed by our authority"):
        load(own, "a")


# while a peer runs


@pytest.fixture
def file(own):
    return RevocationFile(own / "ca" / "revoked.pem", load(own, "a").authority)


@pytest.fixture
def verifier(own, file):
    return Verifier(load(own, "a").authority, file.read(time.time()))


def take_up(verifier, file):
    """Do as a host does: take up a list that has changed; return whether there was one."""
    fresh = file.read_if_changed(time.time())
    verifier.revocations = fresh or verifier.revocations
    return fresh is not None


def refusal(verifier, pem):
    with pytest.raises(UntrustedError) as refused:
        verifier.check(pem, time.time())
    return refused.value.reason


def test_a_revocation_is_taken_up_when_the_file_has_changed(verifier, file, own):
    b = load(own, "b")
    assert verifier.check(b.cert_pem, time.time()).name == "b"
    assert not take_up(verifier, file)
    certs.revoke(own / "ca", "b")
    assert verifier.check(b.cert_pem, time.time()).name == "b"  # the file was not read yet
    assert take_up(verifier, file)
    assert not take_up(verifier, file)
    assert refusal(verifier, b.cert_pem) == "revoked"
    fresh = certs.issue(own / "ca", "b", overwrite=True)
    assert verifier.check(fresh.cert.read_bytes(), time.time()).name == "b"


def test_a_damaged_list_leaves_the_old_one(verifier, file, own):
    b = load(own, "b")
    certs.revoke(own / "ca", "b")
    assert take_up(verifier, file)
    good = (own / "ca" / "revoked.pem").read_bytes()
    for bad in (b"", good[:100], (own / "foreign" / "revoked.pem").read_bytes()):
        (own / "ca" / "revoked.pem").write_bytes(bad)
        with pytest.raises(CredentialsError):
            take_up(verifier, file)
        assert not take_up(verifier, file)  # reported once
        assert refusal(verifier, b.cert_pem) == "revoked"
    (own / "ca" / "revoked.pem").unlink()
    with pytest.raises(CredentialsError, match="does not exist"):
        take_up(verifier, file)
    assert not take_up(verifier, file)
    (own / "ca" / "revoked.pem").write_bytes(good)
    assert take_up(verifier, file)


def test_an_older_list_takes_back_no_revocation(verifier, file, own):
    old = (own / "ca" / "revoked.pem").read_bytes()
    certs.revoke(own / "ca", "b")
    assert take_up(verifier, file)
    (own / "ca" / "revoked.pem").write_bytes(old)
    with pytest.raises(CredentialsError, match="is older"):
        take_up(verifier, file)
    assert refusal(verifier, load(own, "b").cert_pem) == "revoked"


def test_a_peer_can_see_its_own_revocation(verifier, file, own):
    certs.revoke(own / "ca", "a")
    assert take_up(verifier, file)
    assert load(own, "a").serial in verifier.revocations.serials
