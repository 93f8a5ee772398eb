"""The local authority: what it signs, what it writes, what it refuses to overwrite, and its command line."""

import ipaddress
import json
import multiprocessing
import os
import stat
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from gadget_svm.cli.certs import certs_app
from gadget_svm.cli.errors import CommandGroup
from gadget_svm.peers import certs
from gadget_svm.peers.issued import write_file
from gadget_svm.peers.naming import check_endpoint, check_host, check_name

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def ca(tmp_path):
    folder = tmp_path / "ca"
    certs.init_ca(folder, now=NOW)
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
    made = certs.issue(ca, "site-a", ["A.example.org", "10.0.0.7", "::1", "[2001:db8::1]", "10.0.0.7"], now=NOW)
    cert = cert_of(made.cert)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert certs.common_name(cert.subject) == "site-a"
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
    made = certs.issue(ca, "a", now=NOW)
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
        write_file(tmp_path / "x.key", b"secret", 0o600)
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
        write_file(target, b"new", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["issued.json"]
    assert target.read_bytes() == b"old"


def test_an_authority_is_not_replaced_unasked(ca):
    before = (ca / "ca.key").read_bytes()
    with pytest.raises(FileExistsError, match="--overwrite"):
        certs.init_ca(ca, now=NOW)
    assert (ca / "ca.key").read_bytes() == before
    certs.issue(ca, "a", now=NOW)
    certs.revoke(ca, "a", now=NOW)
    certs.init_ca(ca, overwrite=True, now=NOW)
    assert (ca / "ca.key").read_bytes() != before
    assert (certs.records(ca), revoked(ca)) == ([], set())
    assert crl_of(ca).is_signature_valid(cert_of(ca / "ca.pem").public_key())


def test_a_certificate_is_not_replaced_unasked(ca):
    made = certs.issue(ca, "a", now=NOW)
    before = made.key.read_bytes()
    with pytest.raises(FileExistsError, match="--overwrite"):
        certs.issue(ca, "a", now=NOW)
    assert made.key.read_bytes() == before
    assert len(certs.records(ca)) == 1
    assert certs.issue(ca, "a", overwrite=True, now=NOW).serial != made.serial


def test_bundles_of_two_authorities_are_not_mixed(ca, tmp_path):
    certs.init_ca(tmp_path / "other", now=NOW)
    certs.issue(tmp_path / "other", "a", out=tmp_path / "site", now=NOW)
    with pytest.raises(FileExistsError, match="another authority"):
        certs.issue(ca, "b", out=tmp_path / "site", now=NOW)
    with pytest.raises(FileExistsError, match="--out"):
        certs.issue(ca, "b", out=tmp_path / "other", overwrite=True, now=NOW)  # would destroy that authority


def test_two_peers_share_a_folder_and_the_newest_list(ca, tmp_path):
    first = certs.issue(ca, "a", out=tmp_path / "site", now=NOW)
    certs.revoke(ca, "a", now=NOW)
    certs.issue(ca, "b", out=tmp_path / "site", now=NOW)
    assert revoked(tmp_path / "site") == {first.serial}


def test_revoking_takes_all_unexpired_certificates_of_a_name(ca, tmp_path):
    short = certs.issue(ca, "a", days=1, out=tmp_path / "0", now=NOW)
    first = certs.issue(ca, "a", out=tmp_path / "1", now=NOW)
    second = certs.issue(ca, "a", out=tmp_path / "2", now=NOW + DAY)
    other = certs.issue(ca, "b", now=NOW)
    assert certs.revoke(ca, "a", now=NOW + 2 * DAY) == [first.serial, second.serial]
    assert revoked(ca) == {first.serial, second.serial}
    states = {record.serial: record.state(NOW + 2 * DAY) for record in certs.records(ca)}
    assert states == {
        short.serial: "expired",
        first.serial: "revoked",
        second.serial: "revoked",
        other.serial: "valid",
    }
    third = certs.issue(ca, "a", out=tmp_path / "3", now=NOW + 2 * DAY)
    assert certs.revoke(ca, "a", now=NOW + 2 * DAY) == [third.serial]
    assert certs.revoke(ca, "a", now=NOW + 2 * DAY) == []
    assert revoked(ca) == {first.serial, second.serial, third.serial}


def test_the_list_is_signed_lasts_as_long_as_the_authority_and_counts_up(ca):
    number = crl_of(ca).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    certs.issue(ca, "a", now=NOW)
    certs.revoke(ca, "a", now=NOW)
    crl = crl_of(ca)
    assert crl.is_signature_valid(cert_of(ca / "ca.pem").public_key())
    assert crl.next_update_utc == cert_of(ca / "ca.pem").not_valid_after_utc
    assert crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == number + 1


def test_what_was_revoked_stays_revoked_under_an_older_record(ca):
    made = certs.issue(ca, "a", now=NOW)
    certs.issue(ca, "b", now=NOW)
    backup = (ca / "issued.json").read_bytes()
    certs.revoke(ca, "a", now=NOW)
    (ca / "issued.json").write_bytes(backup)
    certs.revoke(ca, "b", now=NOW)
    assert made.serial in revoked(ca)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"garbage")])
def test_a_lost_list_is_made_again_from_the_record(ca, damage):
    made = certs.issue(ca, "a", now=NOW)
    certs.revoke(ca, "a", now=NOW)
    damage(ca / "revoked.pem")
    assert revoked(certs.issue(ca, "b", now=NOW).revoked.parent) == {made.serial}


def _issue_some(folder: Path, who: str) -> None:
    for i in range(5):
        certs.issue(folder, f"{who}-{i}", now=NOW)


def test_two_at_once_lose_no_record(ca):
    context = multiprocessing.get_context("spawn")
    working = [context.Process(target=_issue_some, args=(ca, who)) for who in ("x", "y")]
    for process in working:
        process.start()
    for process in working:
        process.join(60)
    assert [process.exitcode for process in working] == [0, 0]
    assert len(certs.records(ca)) == 10


def test_no_certificate_answers_in_another_peers_name(ca):
    certs.issue(ca, "a", ["gate"], now=NOW)
    with pytest.raises(certs.CertError, match="name of another peer"):
        certs.issue(ca, "b", ["a"], now=NOW)
    with pytest.raises(certs.CertError, match="choose another name"):
        certs.issue(ca, "gate", now=NOW)
    certs.revoke(ca, "a", now=NOW)
    certs.issue(ca, "gate", now=NOW)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a b", "ä", "a/../b", "a" * 64, "a\n", "10.0.0.1"])
def test_names_that_are_none(ca, name):
    with pytest.raises(ValueError, match="hospital-a"):
        certs.issue(ca, name, now=NOW)
    assert certs.records(ca) == []


@pytest.mark.parametrize("name", ["a", "7", "a-b.c", "a" * 63])
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["ca", "revoked"])
def test_names_of_the_authoritys_own_files(ca, name):
    with pytest.raises(certs.CertError, match="file of the authority"):
        certs.issue(ca, name, now=NOW)


@pytest.mark.parametrize("host", ["", "a:7400", "a b", "*.example.org", "http://a", "a..b", "fe80::1%eth0", "ä.de"])
def test_hosts_that_are_none(host):
    with pytest.raises(ValueError, match="is no host"):
        check_host(host)


def test_hosts():
    assert [check_host(host) for host in ("A.b.", "[::1]", "2001:DB8:0::1", "10.0.0.7", "my_box")] == [
        "a.b",
        "::1",
        "2001:db8::1",
        "10.0.0.7",
        "my_box",
    ]


@pytest.mark.parametrize("text", ["", "a", "a:", ":7400", "a:0", "a:65536", "a:x", "::1:7400", "a:7400:1", "a:٣"])
def test_endpoints_that_are_none(text):
    with pytest.raises(ValueError, match="host:port"):
        check_endpoint(text)


def test_endpoints():
    assert [check_endpoint(text) for text in ("a:7400", "[::1]:1", "10.0.0.7:65535")] == [
        "a:7400",
        "[::1]:1",
        "10.0.0.7:65535",
    ]


def test_an_authority_outlives_what_it_signs(ca):
    with pytest.raises(certs.CertError, match="--days 10 at most"):
        certs.issue(ca, "a", days=20, now=NOW + 3640 * DAY)
    with pytest.raises(certs.CertError, match="make a new one"):
        certs.issue(ca, "a", days=1, now=NOW + 3651 * DAY)


def test_damaged_and_missing_files_name_the_way_out(ca, tmp_path):
    with pytest.raises(certs.CertError, match="gadget certs init"):
        certs.issue(tmp_path / "none", "a", now=NOW)
    with pytest.raises(certs.CertError, match=r"issued\.json is missing"):
        certs.records(tmp_path / "none")
    certs.init_ca(tmp_path / "other", now=NOW)
    (ca / "issued.json").write_text(json.dumps({"format": "else"}))
    with pytest.raises(certs.CertError, match="restore it from a backup"):
        certs.revoke(ca, "a", now=NOW)
    (ca / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(certs.CertError, match=r"not the key of ca\.pem"):
        certs.issue(ca, "a", now=NOW)
    (ca / "ca.key").write_bytes(b"garbage")
    with pytest.raises(certs.CertError, match="damaged"):
        certs.issue(ca, "a", now=NOW)


# the command line


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
    app.add_typer(certs_app, name="certs")
    app.callback()(lambda: None)
    return lambda *words: CliRunner().invoke(app, ["certs", *words], prog_name="gadget", env={"COLUMNS": "120"})


def test_from_init_to_revoke(run, tmp_path):
    assert run("init", "ca").exit_code == 0
    assert "No certificate" in run("list").stdout
    made = run("issue", "a", "--host", "a.example.org", "--host", "10.0.0.7", "--days", "30", "--out", "bundle")
    assert made.exit_code == 0, made.stderr
    assert (tmp_path / "bundle" / "a.key").exists()
    assert run("issue", "b").exit_code == 0
    gone = run("revoke", "a")
    assert "1 certificate of a revoked" in gone.stdout
    assert str(Path("ca") / "revoked.pem") in gone.stdout
    assert "Nothing new" in run("revoke", "a").stdout
    shown = {line.split()[0]: line for line in run("list").stdout.splitlines() if line.strip()}
    assert "revoked" in shown["a"]
    assert "10.0.0.7" in shown["a"]
    assert "valid" in shown["b"]


def test_mistakes_are_one_line_and_exit_2(run):
    run("init", "ca")
    run("issue", "hospital-a")
    for words, text in [
        (("init", "ca"), "--overwrite"),
        (("issue", "hospital-a"), "--overwrite"),
        (("issue", "Ward 3"), "is no peer's name"),
        (("issue", "b", "--host", "b:7400"), "without a port"),
        (("revoke", "hospital-b"), "Did you mean 'hospital-a'?"),
        (("list", "--ca", "elsewhere"), "--ca"),
    ]:
        failed = run(*words)
        assert failed.exit_code == 2, words
        assert text in failed.stderr
        assert failed.stderr.count("\n") == 1


def test_without_the_extra_one_sentence(run, monkeypatch):
    for module in [name for name in sys.modules if name.startswith("gadget_svm.peers")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr("gadget_svm.peers.certs", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    failed = run("init", "ca")
    assert failed.exit_code == 2
    assert failed.stderr.strip() == (
        "error: certificates need cryptography, which is not installed: pip install 'gadget-svm[peer]'"
    )
