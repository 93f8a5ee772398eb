"""Credentials: files that do not fit together, and certificates and signatures of others that are refused."""

import os
import time

import pytest

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gadget_svm.authority import certificates as certs
from gadget_svm.peers.security.credentials import CONTEXT, Credentials
from gadget_svm.peers.security.errors import CredentialsError, UntrustedError
from support.credentials_kit import DAY, files, load, make_verifier, signed_by_hand

# a peer's own files


def test_a_bundle_as_issued_is_an_load(world):
    found = load(world, "a", expect="a")
    record = next(record for record in certs.records(world / "ca") if record.name == "a")
    assert (found.name, found.serial, found.not_after) == ("a", record.serial, record.not_after)
    assert found.warnings == ()


def test_the_private_key_is_not_shown(world):
    assert "PRIVATE" not in repr(load(world, "a"))


@pytest.mark.parametrize("key", ["cert", "key", "ca", "revoked"])
def test_missing_and_damaged_files_are_named(own, key):
    """Without a revocation list, too, a peer does not start."""
    path = files(own / "ca" / "peers" / "a", "a")[key]
    whole = path.read_bytes()
    for rest in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(rest)
        with pytest.raises(CredentialsError, match=f"tls.{key}"):
            load(own, "a")
    path.unlink()
    with pytest.raises(CredentialsError, match=f"tls.{key}. does not exist"):
        load(own, "a")
    path.mkdir()
    with pytest.raises(CredentialsError, match=f"tls.{key}. cannot be read"):
        load(own, "a")


@pytest.mark.parametrize(
    ("key", "instead", "told"),
    [
        ("cert", "ca/peers/a/a.key", r"tls\.cert\) holds a private key"),
        ("cert", "ca/ca.pem", "name the peer's own"),
        ("cert", "ca/peers/b/b.pem", "is not the key of"),
        ("cert", "ca/revoked.pem", r"tls\.cert\) does not hold exactly one certificate"),
        ("key", "ca/peers/a/a.pem", "holds no private key"),
        ("key", "ca/peers/b/b.key", "is not the key of"),
        ("ca", "ca/peers/a/a.pem", r"name ca\.pem"),
        ("ca", "ca/ca.key", r"tls\.ca\) holds a private key"),
        ("ca", "foreign/ca.pem", "was not issued by the authority"),
        ("revoked", "foreign/revoked.pem", "is not signed by our authority"),
        ("revoked", "ca/ca.pem", "is not a revocation list"),
    ],
)
def test_files_that_were_mixed_up(world, key, instead, told):
    with pytest.raises(CredentialsError, match=told):
        Credentials.load(**{**files(world / "ca" / "peers" / "a", "a"), key: world / instead}, now=time.time())


def test_two_authorities_in_one_file_are_one_too_many(own):
    """TLS would trust both."""
    path = own / "ca" / "peers" / "a" / "ca.pem"
    path.write_bytes(path.read_bytes() + (own / "foreign" / "ca.pem").read_bytes())
    with pytest.raises(CredentialsError, match="exactly one"):
        load(own, "a")


def test_dates(world):
    now = time.time()
    with pytest.raises(CredentialsError, match=r"a\.pem expired on .*gadget certs issue a --overwrite"):
        load(world, "a", now=now + 366 * DAY)
    with pytest.raises(CredentialsError, match="clock right"):
        load(world, "a", now=now - DAY)
    with pytest.raises(CredentialsError, match=r"ca\.pem expired on .*gadget certs init"):
        load(world, "a", now=now + 3651 * DAY)


def test_a_revoked_peer_does_not_start(own):
    certs.revoke(own / "ca", "a")
    with pytest.raises(CredentialsError, match="is revoked"):
        Credentials.load(
            **{**files(own / "ca" / "peers" / "a", "a"), "revoked": own / "ca" / "revoked.pem"}, now=time.time()
        )


def test_a_peer_is_called_what_its_certificate_says(world):
    with pytest.raises(
        CredentialsError, match=r"certificate of 'a', but the peer is called 'ward'.*gadget certs issue ward"
    ):
        load(world, "a", expect="ward")


def test_a_key_that_others_may_read_is_a_warning(own):
    key = files(own / "ca" / "peers" / "a", "a")["key"]
    key.chmod(0o640)
    assert "chmod 600" in load(own, "a").warnings[0]


# the certificates of others


@pytest.fixture
def verifier(own):
    return make_verifier(own)


def refusal(verifier, pem, now=None):
    with pytest.raises(UntrustedError) as refused:
        verifier.check(pem, time.time() if now is None else now)
    return refused.value.reason


def name_of(verifier, pem, now=None):
    return verifier.check(pem, time.time() if now is None else now).name


def test_others_of_our_authority_are_known_by_name(verifier, own):
    b = load(own, "b")
    assert [name_of(verifier, b.cert_pem) for _ in range(3)] == ["b", "b", "b"]
    found = verifier.check(b.cert_pem, time.time())
    assert (found.serial, found.not_after) == (b.serial, b.not_after)


def test_strangers(verifier, own):
    """The stranger's name and its authority's name are the same as ours."""
    for pem in (load(own, "a", "foreign").cert_pem, b"", b"garbage", b"x" * 100_000):
        assert refusal(verifier, pem) == "stranger"
    assert refusal(verifier, (own / "ca" / "ca.pem").read_bytes()) == "stranger"
    assert refusal(verifier, signed_by_hand(own, "c", names=["c"], authority=True)) == "stranger"


def test_the_nameless(verifier, own):
    assert name_of(verifier, signed_by_hand(own, "c", names=["c"])) == "c"
    assert refusal(verifier, signed_by_hand(own, "c", names=[])) == "nameless"
    assert refusal(verifier, signed_by_hand(own, "c", names=["d"])) == "nameless"
    assert refusal(verifier, signed_by_hand(own, "Ward 3", names=["Ward 3"])) == "nameless"


def test_dates_are_checked_every_time(verifier, own):
    b, now = load(own, "b"), time.time()
    assert name_of(verifier, b.cert_pem, now) == "b"
    assert refusal(verifier, b.cert_pem, b.not_after + 1) == "expired"
    assert refusal(verifier, b.cert_pem, now - DAY) == "expired"
    assert name_of(verifier, b.cert_pem, b.not_after) == "b"


def test_a_certificate_ends_with_its_authority(verifier, own):
    long = signed_by_hand(own, "c", names=["c"], days=5000)
    assert name_of(verifier, long) == "c"
    assert refusal(verifier, long, time.time() + 4000 * DAY) == "expired"


def test_only_so_many_are_remembered(own):
    verifier = make_verifier(own, size=3)
    many = [signed_by_hand(own, f"c{i}", names=[f"c{i}"]) for i in range(5)]
    for _ in range(2):
        assert [name_of(verifier, pem) for pem in many] == [f"c{i}" for i in range(5)]
        assert verifier.examine.cache_info().currsize == 3

    def remembered(pem):
        before = verifier.examine.cache_info().hits
        name_of(verifier, pem)
        return verifier.examine.cache_info().hits > before

    refusal(verifier, load(own, "a", "foreign").cert_pem)
    assert all(map(remembered, many[2:]))  # strangers displace none
    assert remembered(many[2])
    assert not remembered(many[0])
    assert not remembered(many[3])  # what was used last stays
    assert remembered(many[2])


# signatures


def test_signatures(verifier, own):
    b, now = load(own, "b"), time.time()
    signature = b.sign(b"hello")
    assert verifier.check_signature(b.cert_pem, b"hello", signature, now).name == "b"
    foreign = load(own, "a", "foreign")
    for pem, data, by in [
        (load(own, "a").cert_pem, b"hello", signature),
        (b.cert_pem, b"hullo", signature),
        (b.cert_pem, b"hello", load(own, "a").sign(b"hello")),
        (b.cert_pem, b"hello", b""),
        (b.cert_pem, b"hello", os.urandom(70)),
        (foreign.cert_pem, b"hello", foreign.sign(b"hello")),
    ]:
        with pytest.raises(UntrustedError) as refused:
            verifier.check_signature(pem, data, by, now)
        assert refused.value.reason == "stranger"
    with pytest.raises(UntrustedError) as refused:
        verifier.check_signature(b.cert_pem, b"hello", signature, b.not_after + 1)
    assert refused.value.reason == "expired"


def test_what_is_signed_is_marked_as_ours(verifier, own):
    """A peer that could be made to sign bare bytes would sign a handshake of TLS, too."""
    b, now = load(own, "b"), time.time()
    key = serialization.load_pem_private_key(b.key_pem, password=None)
    with pytest.raises(UntrustedError):
        verifier.check_signature(b.cert_pem, b"hello", key.sign(b"hello", ec.ECDSA(hashes.SHA256())), now)
    marked = key.sign(CONTEXT + b"hello", ec.ECDSA(hashes.SHA256()))
    verifier.check_signature(b.cert_pem, b"hello", marked, now)
