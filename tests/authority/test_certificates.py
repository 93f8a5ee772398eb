"""The local authority: what it signs, what it writes, and what it refuses to overwrite."""

import ipaddress
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gadget_svm.authority import certificates
from gadget_svm.core.state_file import write_atomically
from gadget_svm.peers.security.errors import CredentialsError

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def ca(tmp_path):
    folder = tmp_path / "ca"
    certificates.init_ca(folder, now=NOW)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def cert_of(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def crl_of(folder: Path) -> x509.CertificateRevocationList:
    return x509.load_pem_x509_crl((folder / "revoked.pem").read_bytes())


def revoked(folder: Path) -> set[int]:
    return {entry.serial_number for entry in crl_of(folder)}


def test_the_authority_may_sign_peers_and_lists_but_no_further_authority(ca):
    cert = cert_of(ca / "ca.pem")
    basic = cert.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = cert.extensions.get_extension_for_class(x509.KeyUsage).value
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert usage.key_cert_sign
    assert usage.crl_sign
    assert not usage.digital_signature
    assert cert.not_valid_after_utc.timestamp() == NOW + 3650 * DAY


def test_a_certificate_says_who_it_is_and_where_it_may_be_reached(ca):
    made = certificates.issue(ca, "site-a", ["A.example.org", "10.0.0.7", "::1", "[2001:db8::1]", "10.0.0.7"], now=NOW)
    cert = cert_of(made.cert)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [each.value for each in cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["site-a"]
    assert names.get_values_for_type(x509.DNSName) == ["site-a", "a.example.org"]
    addresses = [ipaddress.ip_address(text) for text in ("10.0.0.7", "::1", "2001:db8::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    purposes = set(cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert isinstance(cert.public_key().curve, ec.SECP256R1)
    assert cert.not_valid_before_utc.timestamp() < NOW  # the clock of another site may be behind
    assert cert.not_valid_after_utc.timestamp() == made.not_after == NOW + 365 * DAY
    cert.verify_directly_issued_by(cert_of(ca / "ca.pem"))


def test_a_bundle_is_complete_and_only_keys_are_private(ca):
    made = certificates.issue(ca, "a", now=NOW)
    assert sorted(path.name for path in made.cert.parent.iterdir()) == ["a.key", "a.pem", "ca.pem", "revoked.pem"]
    assert made.cert.parent == ca / "peers" / "a"
    assert made.ca.read_bytes() == (ca / "ca.pem").read_bytes()
    assert mode(made.key) == mode(ca / "ca.key") == 0o600
    assert mode(made.cert) == mode(ca / "revoked.pem") == 0o644
    assert mode(ca) == 0o700


def test_a_key_is_closed_before_its_first_byte(tmp_path, monkeypatch):
    """Even under a careless umask, and even in the file that is renamed later."""
    seen = []
    real = os.open

    def spy(path, flags, *rest, **names):
        descriptor = real(path, flags, *rest, **names)
        if flags & os.O_CREAT:
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "open", spy)
        (tmp_path / "x.key.part").write_bytes(b"left behind, and open to all")
        write_atomically(tmp_path / "x.key", b"secret", 0o600)
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert mode(tmp_path / "x.key") == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    target = tmp_path / "issued.json"
    target.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["issued.json"]
    assert target.read_bytes() == b"old"


def test_an_authority_is_not_replaced_unasked(ca):
    before = (ca / "ca.key").read_bytes()
    with pytest.raises(FileExistsError, match="--overwrite"):
        certificates.init_ca(ca, now=NOW)
    assert (ca / "ca.key").read_bytes() == before
    certificates.issue(ca, "a", now=NOW)
    certificates.revoke(ca, "a", now=NOW)
    certificates.init_ca(ca, overwrite=True, now=NOW)
    assert (ca / "ca.key").read_bytes() != before
    assert (certificates.records(ca), revoked(ca)) == ([], set())
    assert crl_of(ca).is_signature_valid(cert_of(ca / "ca.pem").public_key())


def test_a_certificate_is_not_replaced_unasked(ca):
    made = certificates.issue(ca, "a", now=NOW)
    before = made.key.read_bytes()
    with pytest.raises(FileExistsError, match="--overwrite"):
        certificates.issue(ca, "a", now=NOW)
    assert made.key.read_bytes() == before
    assert len(certificates.records(ca)) == 1
    assert certificates.issue(ca, "a", overwrite=True, now=NOW).serial != made.serial


def test_bundles_of_two_authorities_are_not_mixed(ca, tmp_path):
    certificates.init_ca(tmp_path / "other", now=NOW)
    certificates.issue(tmp_path / "other", "a", out=tmp_path / "site", now=NOW)
    with pytest.raises(FileExistsError, match="another authority"):
        certificates.issue(ca, "b", out=tmp_path / "site", now=NOW)
    with pytest.raises(FileExistsError, match="--out"):
        certificates.issue(ca, "b", out=tmp_path / "other", overwrite=True, now=NOW)  # would destroy that authority


def test_two_peers_share_a_folder_and_the_newest_list(ca, tmp_path):
    first = certificates.issue(ca, "a", out=tmp_path / "site", now=NOW)
    certificates.revoke(ca, "a", now=NOW)
    certificates.issue(ca, "b", out=tmp_path / "site", now=NOW)
    assert revoked(tmp_path / "site") == {first.serial}


def test_revoking_takes_all_unexpired_certificates_of_a_name(ca, tmp_path):
    short = certificates.issue(ca, "a", days=1, out=tmp_path / "0", now=NOW)
    first = certificates.issue(ca, "a", out=tmp_path / "1", now=NOW)
    second = certificates.issue(ca, "a", out=tmp_path / "2", now=NOW + DAY)
    other = certificates.issue(ca, "b", now=NOW)
    assert certificates.revoke(ca, "a", now=NOW + 2 * DAY) == [first.serial, second.serial]
    assert revoked(ca) == {first.serial, second.serial}
    states = {record.serial: record.state(NOW + 2 * DAY) for record in certificates.records(ca)}
    assert states == {
        short.serial: "expired",
        first.serial: "revoked",
        second.serial: "revoked",
        other.serial: "valid",
    }
    third = certificates.issue(ca, "a", out=tmp_path / "3", now=NOW + 2 * DAY)
    assert certificates.revoke(ca, "a", now=NOW + 2 * DAY) == [third.serial]
    assert certificates.revoke(ca, "a", now=NOW + 2 * DAY) == []
    assert revoked(ca) == {first.serial, second.serial, third.serial}


def test_the_list_is_signed_lasts_as_long_as_the_authority_and_counts_up(ca):
    number = crl_of(ca).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    certificates.issue(ca, "a", now=NOW)
    certificates.revoke(ca, "a", now=NOW)
    crl = crl_of(ca)
    assert crl.is_signature_valid(cert_of(ca / "ca.pem").public_key())
    assert crl.next_update_utc == cert_of(ca / "ca.pem").not_valid_after_utc
    assert crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == number + 1


def test_what_was_revoked_stays_revoked_under_an_older_record(ca):
    made = certificates.issue(ca, "a", now=NOW)
    certificates.issue(ca, "b", now=NOW)
    backup = (ca / "issued.json").read_bytes()
    certificates.revoke(ca, "a", now=NOW)
    (ca / "issued.json").write_bytes(backup)
    certificates.revoke(ca, "b", now=NOW)
    assert made.serial in revoked(ca)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"garbage")])
def test_a_lost_list_is_made_again_from_the_record(ca, damage):
    made = certificates.issue(ca, "a", now=NOW)
    certificates.revoke(ca, "a", now=NOW)
    damage(ca / "revoked.pem")
    assert revoked(certificates.issue(ca, "b", now=NOW).revoked.parent) == {made.serial}


def _issue_some(folder: Path, who: str) -> None:
    for i in range(5):
        certificates.issue(folder, f"{who}-{i}", now=NOW)


def test_two_at_once_lose_no_record(ca):
    context = multiprocessing.get_context("spawn")
    working = [context.Process(target=_issue_some, args=(ca, who)) for who in ("x", "y")]
    for process in working:
        process.start()
    for process in working:
        process.join(60)
    assert [process.exitcode for process in working] == [0, 0]
    assert len(certificates.records(ca)) == 10


def test_no_certificate_answers_in_another_peers_name(ca):
    certificates.issue(ca, "a", ["gate"], now=NOW)
    with pytest.raises(CredentialsError, match="name of another peer"):
        certificates.issue(ca, "b", ["a"], now=NOW)
    with pytest.raises(CredentialsError, match="choose another name"):
        certificates.issue(ca, "gate", now=NOW)
    certificates.revoke(ca, "a", now=NOW)
    certificates.issue(ca, "gate", now=NOW)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a b", "ä", "a/../b", "a" * 64, "a\n", "10.0.0.1"])
def test_names_that_are_none(ca, name):
    with pytest.raises(ValueError, match="hospital-a"):
        certificates.issue(ca, name, now=NOW)
    assert certificates.records(ca) == []


@pytest.mark.parametrize("name", ["ca", "revoked"])
def test_names_of_the_authoritys_own_files(ca, name):
    with pytest.raises(CredentialsError, match="file of the authority"):
        certificates.issue(ca, name, now=NOW)


def test_an_authority_outlives_what_it_signs(ca):
    with pytest.raises(CredentialsError, match="--days 10 at most"):
        certificates.issue(ca, "a", days=20, now=NOW + 3640 * DAY)
    with pytest.raises(CredentialsError, match="make a new one"):
        certificates.issue(ca, "a", days=1, now=NOW + 3651 * DAY)


def test_damaged_and_missing_files_name_the_way_out(ca, tmp_path):
    with pytest.raises(CredentialsError, match="gadget certs init"):
        certificates.issue(tmp_path / "none", "a", now=NOW)
    with pytest.raises(CredentialsError, match=r"issued\.json is missing"):
        certificates.records(tmp_path / "none")
    certificates.init_ca(tmp_path / "other", now=NOW)
    (ca / "issued.json").write_text(json.dumps({"format": "else"}))
    with pytest.raises(CredentialsError, match="restore it from a backup"):
        certificates.revoke(ca, "a", now=NOW)
    (ca / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(CredentialsError, match=r"not the key of ca\.pem"):
        certificates.issue(ca, "a", now=NOW)
    (ca / "ca.key").write_bytes(b"garbage")
    with pytest.raises(CredentialsError, match="damaged"):
        certificates.issue(ca, "a", now=NOW)
