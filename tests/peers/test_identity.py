"""Who a peer is and whom it believes: files that do not fit, certificates that are not good, and TLS as spoken."""

import asyncio
import logging
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("grpc")
import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gadget_svm.peers import certs
from gadget_svm.peers.identity import CONTEXT, Identity, IdentityError, Refused, Verifier

DAY = 86_400.0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One authority with peers a and b, another one with a stranger that calls itself a."""
    folder = tmp_path_factory.mktemp("world")
    certs.init_ca(folder / "ca")
    certs.init_ca(folder / "foreign")
    certs.issue(folder / "ca", "a", ["localhost", "127.0.0.1"])
    certs.issue(folder / "ca", "b")
    certs.issue(folder / "foreign", "a")
    return folder


@pytest.fixture
def own(world, tmp_path):
    """The same world for a test that changes it."""
    return Path(shutil.copytree(world, tmp_path / "world"))


def files(bundle: Path, name: str) -> dict[str, Path]:
    places = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"}
    return {key: bundle / file for key, file in places.items()}


def identity(world: Path, name: str, authority: str = "ca", **options) -> Identity:
    return Identity.load(**files(world / authority / "peers" / name, name), **options)


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


# a peer's own files


def test_a_bundle_as_issued_is_an_identity(world):
    found = identity(world, "a", expect="a")
    record = next(record for record in certs.records(world / "ca") if record.name == "a")
    assert (found.name, found.serial, found.not_after) == ("a", record.serial, record.not_after)
    assert found.warnings == ()


def test_the_private_key_is_not_shown(world):
    assert "PRIVATE" not in repr(identity(world, "a"))


@pytest.mark.parametrize("key", ["cert", "key", "ca", "revoked"])
def test_missing_and_damaged_files_are_named(own, key):
    """Without a revocation list, too, a peer does not start."""
    path = files(own / "ca" / "peers" / "a", "a")[key]
    whole = path.read_bytes()
    for rest in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(rest)
        with pytest.raises(IdentityError, match=f"tls.{key}"):
            identity(own, "a")
    path.unlink()
    with pytest.raises(IdentityError, match=f"tls.{key}. does not exist"):
        identity(own, "a")
    path.mkdir()
    with pytest.raises(IdentityError, match=f"tls.{key}. cannot be read"):
        identity(own, "a")


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
    with pytest.raises(IdentityError, match=told):
        Identity.load(**{**files(world / "ca" / "peers" / "a", "a"), key: world / instead})


def test_two_authorities_in_one_file_are_one_too_many(own):
    """TLS would trust both."""
    path = own / "ca" / "peers" / "a" / "ca.pem"
    path.write_bytes(path.read_bytes() + (own / "foreign" / "ca.pem").read_bytes())
    with pytest.raises(IdentityError, match="exactly one"):
        identity(own, "a")


def test_dates(world):
    now = time.time()
    with pytest.raises(IdentityError, match=r"a\.pem expired on .*gadget certs issue a --overwrite"):
        identity(world, "a", now=now + 366 * DAY)
    with pytest.raises(IdentityError, match="clock right"):
        identity(world, "a", now=now - DAY)
    with pytest.raises(IdentityError, match=r"ca\.pem expired on .*gadget certs init"):
        identity(world, "a", now=now + 3651 * DAY)


def test_a_list_that_has_expired_is_none(own):
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
    with pytest.raises(IdentityError, match="has expired"):
        identity(own, "a")


def test_a_list_that_was_changed_by_others_is_refused(own):
    path = files(own / "ca" / "peers" / "a", "a")["revoked"]
    crl = x509.load_pem_x509_crl(path.read_bytes())
    raw = bytearray(crl.public_bytes(serialization.Encoding.DER))
    at = bytes(raw).index(crl.tbs_certlist_bytes) + len(crl.tbs_certlist_bytes) - 1  # the number's last byte
    raw[at] ^= 1
    forged = x509.load_der_x509_crl(bytes(raw))
    path.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(IdentityError, match="not signed by our authority"):
        identity(own, "a")


def test_a_revoked_peer_does_not_start(own):
    certs.revoke(own / "ca", "a")
    with pytest.raises(IdentityError, match="is revoked"):
        Identity.load(**{**files(own / "ca" / "peers" / "a", "a"), "revoked": own / "ca" / "revoked.pem"})


def test_a_peer_is_called_what_its_certificate_says(world):
    with pytest.raises(
        IdentityError, match=r"certificate of 'a', but the peer is called 'ward'.*gadget certs issue ward"
    ):
        identity(world, "a", expect="ward")


def test_a_key_that_others_may_read_is_a_warning(own, caplog):
    key = files(own / "ca" / "peers" / "a", "a")["key"]
    key.chmod(0o640)
    assert "chmod 600" in identity(own, "a").warnings[0]
    assert "chmod 600" in caplog.text


# the certificates of others


@pytest.fixture
def verifier(own):
    return Verifier(identity(own, "a"), own / "ca" / "revoked.pem")


def refusal(verifier: Verifier, pem: bytes, **options) -> str:
    with pytest.raises(Refused) as refused:
        verifier.name_of(pem, **options)
    return refused.value.reason


def test_others_of_our_authority_are_known_by_name(verifier, own):
    b = identity(own, "b")
    assert [verifier.name_of(b.cert_pem) for _ in range(3)] == ["b", "b", "b"]


def test_strangers(verifier, own):
    """The stranger's name and its authority's name are the same as ours."""
    for pem in (identity(own, "a", "foreign").cert_pem, b"", b"garbage", b"x" * 100_000):
        assert refusal(verifier, pem) == "stranger"
    assert refusal(verifier, (own / "ca" / "ca.pem").read_bytes()) == "stranger"
    assert refusal(verifier, signed_by_hand(own, "c", names=["c"], authority=True)) == "stranger"


def test_the_nameless(verifier, own):
    assert verifier.name_of(signed_by_hand(own, "c", names=["c"])) == "c"
    assert refusal(verifier, signed_by_hand(own, "c", names=[])) == "nameless"
    assert refusal(verifier, signed_by_hand(own, "c", names=["d"])) == "nameless"
    assert refusal(verifier, signed_by_hand(own, "Ward 3", names=["Ward 3"])) == "nameless"


def test_dates_are_looked_at_on_every_call(verifier, own):
    b, now = identity(own, "b"), time.time()
    assert verifier.name_of(b.cert_pem, now=now) == "b"
    assert refusal(verifier, b.cert_pem, now=b.not_after + 1) == "expired"
    assert refusal(verifier, b.cert_pem, now=now - DAY) == "expired"
    assert verifier.name_of(b.cert_pem, now=b.not_after) == "b"


def test_a_certificate_dies_with_its_authority(verifier, own):
    long = signed_by_hand(own, "c", names=["c"], days=5000)
    assert verifier.name_of(long) == "c"
    assert refusal(verifier, long, now=time.time() + 4000 * DAY) == "expired"


def test_only_so_many_are_remembered(own):
    verifier = Verifier(identity(own, "a"), own / "ca" / "revoked.pem", size=3)
    many = [signed_by_hand(own, f"c{i}", names=[f"c{i}"]) for i in range(5)]
    for _ in range(2):
        assert [verifier.name_of(pem) for pem in many] == [f"c{i}" for i in range(5)]
        assert len(verifier._known) == 3
    refusal(verifier, identity(own, "a", "foreign").cert_pem)
    assert list(verifier._known) == many[2:]  # strangers displace no one
    verifier.name_of(many[2])
    verifier.name_of(many[0])
    assert list(verifier._known) == [many[4], many[2], many[0]]  # who was used last stays


# revocation while running


def test_a_revocation_is_taken_up_when_the_file_has_changed(verifier, own):
    b = identity(own, "b")
    assert verifier.name_of(b.cert_pem) == "b"
    assert not verifier.reload()
    certs.revoke(own / "ca", "b")
    assert verifier.name_of(b.cert_pem) == "b"  # nobody has looked yet
    assert verifier.reload()
    assert not verifier.reload()
    assert refusal(verifier, b.cert_pem) == "revoked"
    fresh = certs.issue(own / "ca", "b", overwrite=True)
    assert verifier.name_of(fresh.cert.read_bytes()) == "b"


def test_a_certificate_is_known_by_its_number_after_its_holder_has_gone(verifier, own):
    """By the one it showed last, should it have several."""
    b = identity(own, "b")
    assert verifier.serial_of("b") == 0
    verifier.name_of(b.cert_pem)
    assert verifier.serial_of("b") == b.serial
    fresh = certs.issue(own / "ca", "b", overwrite=True)
    verifier.name_of(fresh.cert.read_bytes())
    assert verifier.serial_of("b") != b.serial
    verifier.name_of(b.cert_pem)
    assert verifier.serial_of("b") == b.serial
    assert not verifier.is_revoked(b.serial)
    certs.revoke(own / "ca", "b")
    assert verifier.reload()
    assert verifier.is_revoked(b.serial)


def test_to_look_whether_a_certificate_has_expired_is_not_to_be_shown_it(verifier, own):
    b = identity(own, "b")
    verifier.name_of(b.cert_pem)
    verifier.name_of(certs.issue(own / "ca", "b", overwrite=True).cert.read_bytes())
    assert not verifier.has_expired(b.cert_pem, now=b.not_after - 1)
    assert verifier.has_expired(b.cert_pem, now=b.not_after + 1)
    assert verifier.serial_of("b") != b.serial
    assert not b.expired
    assert replace(b, not_after=time.time() - 1).expired


def test_a_damaged_list_leaves_the_old_one(verifier, own, caplog):
    b = identity(own, "b")
    certs.revoke(own / "ca", "b")
    verifier.reload()
    good = (own / "ca" / "revoked.pem").read_bytes()
    for bad in (b"", good[:100], (own / "foreign" / "revoked.pem").read_bytes()):
        caplog.clear()
        (own / "ca" / "revoked.pem").write_bytes(bad)
        assert not verifier.reload()
        assert caplog.records[-1].levelno == logging.ERROR
        assert refusal(verifier, b.cert_pem) == "revoked"
    (own / "ca" / "revoked.pem").unlink()
    caplog.clear()
    assert [verifier.reload(), verifier.reload()] == [False, False]
    assert len(caplog.records) == 1  # said once
    assert refusal(verifier, b.cert_pem) == "revoked"
    (own / "ca" / "revoked.pem").write_bytes(good)
    assert verifier.reload()


def test_an_older_list_forgives_no_one(verifier, own, caplog):
    old = (own / "ca" / "revoked.pem").read_bytes()
    certs.revoke(own / "ca", "b")
    assert verifier.reload()
    (own / "ca" / "revoked.pem").write_bytes(old)
    assert not verifier.reload()
    assert "is older" in caplog.text
    assert refusal(verifier, identity(own, "b").cert_pem) == "revoked"


def test_a_peer_hears_of_its_own_revocation(verifier, own, caplog):
    certs.revoke(own / "ca", "a")
    assert verifier.reload()
    assert "our own certificate" in caplog.text


# signatures


def test_signatures(verifier, own):
    b = identity(own, "b")
    signature = b.sign(b"hello")
    verifier.check_signature(b.cert_pem, "b", b"hello", signature)
    for pem, name, data, by in [
        (b.cert_pem, "a", b"hello", signature),
        (b.cert_pem, "b", b"hullo", signature),
        (b.cert_pem, "b", b"hello", identity(own, "a").sign(b"hello")),
        (b.cert_pem, "b", b"hello", b""),
        (b.cert_pem, "b", b"hello", os.urandom(70)),
        (identity(own, "a", "foreign").cert_pem, "a", b"hello", identity(own, "a", "foreign").sign(b"hello")),
    ]:
        with pytest.raises(Refused) as refused:
            verifier.check_signature(pem, name, data, by)
        assert refused.value.reason == "stranger"
    with pytest.raises(Refused) as refused:
        verifier.check_signature(b.cert_pem, "b", b"hello", signature, now=b.not_after + 1)
    assert refused.value.reason == "expired"


def test_what_is_signed_is_marked_as_ours(verifier, own):
    """A peer that could be made to sign bare bytes would sign a handshake of TLS, too."""
    b = identity(own, "b")
    key = serialization.load_pem_private_key(b.key_pem, password=None)
    with pytest.raises(Refused):
        verifier.check_signature(b.cert_pem, "b", b"hello", key.sign(b"hello", ec.ECDSA(hashes.SHA256())))
    marked = key.sign(CONTEXT + b"hello", ec.ECDSA(hashes.SHA256()))
    verifier.check_signature(b.cert_pem, "b", b"hello", marked)


# TLS as gRPC speaks it


def ask(server: Identity, verifier: Verifier, channel, times: int = 1) -> list[str]:
    """Start a server, open ``channel(address)`` to it and ask who the server thinks we are."""

    async def who(_request, context):
        try:
            return verifier.name_of(context.auth_context()["x509_pem_cert"][0]).encode()
        except Refused as refused:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refused.reason)

    async def talk() -> list[str]:
        serving = grpc.aio.server()
        handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
        serving.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
        port = serving.add_secure_port("127.0.0.1:0", server.server_credentials())
        await serving.start()
        try:
            async with channel(f"127.0.0.1:{port}") as opened:
                call = opened.unary_unary("/test.Test/Who")
                return [(await call(b"", timeout=10)).decode() for _ in range(times)]
        finally:
            await serving.stop(None)

    return asyncio.run(talk())


def dial(credentials, name: str):
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    return lambda address: grpc.aio.secure_channel(address, credentials, options=options)


def test_peers_of_one_authority_talk_and_know_each_other(own, verifier):
    b = identity(own, "b")
    assert ask(identity(own, "a"), verifier, dial(b.channel_credentials(), "a"), times=2) == ["b", "b"]


def test_a_peer_may_be_called_at_the_hosts_of_its_certificate(own, verifier):
    credentials = identity(own, "b").channel_credentials()
    assert ask(identity(own, "a"), verifier, lambda to: grpc.aio.secure_channel(to, credentials)) == ["b"]


def refused_call(*arguments) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        ask(*arguments)
    return refused.value


def test_a_client_of_another_authority_is_not_let_in(own, verifier):
    """It even trusts our authority: it is the server that refuses."""
    stranger = identity(own, "a", "foreign")
    ours = (own / "ca" / "ca.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(ours, stranger.key_pem, stranger.cert_pem)
    assert refused_call(identity(own, "a"), verifier, dial(credentials, "a")).code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_without_a_certificate_is_not_let_in(own, verifier):
    credentials = grpc.ssl_channel_credentials((own / "ca" / "ca.pem").read_bytes())
    assert refused_call(identity(own, "a"), verifier, dial(credentials, "a")).code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_without_tls_is_not_let_in(own, verifier):
    assert refused_call(identity(own, "a"), verifier, grpc.aio.insecure_channel).code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_whose_certificate_has_expired_is_not_let_in(own, tmp_path):
    ago = time.time() - 10 * DAY
    certs.init_ca(own / "ca", overwrite=True, now=ago)
    server = certs.issue(own / "ca", "a", now=ago, out=tmp_path / "a")
    late = certs.issue(own / "ca", "b", days=5, now=ago, out=tmp_path / "b")
    a = Identity.load(server.cert, server.key, server.ca, server.revoked)
    b = Identity.load(late.cert, late.key, late.ca, late.revoked, now=ago)
    judge = Verifier(a, server.revoked)
    assert ask(a, judge, dial(a.channel_credentials(), "a")) == ["a"]  # all else is in order
    assert refused_call(a, judge, dial(b.channel_credentials(), "a")).code() == grpc.StatusCode.UNAVAILABLE
    assert refusal(judge, b.cert_pem) == "expired"
    refused = refused_call(b, judge, dial(a.channel_credentials(), "b"))  # nor is a server like that believed
    assert refused.code() == grpc.StatusCode.UNAVAILABLE


def test_a_server_of_another_name_is_not_believed(own, verifier):
    a, credentials = identity(own, "a"), identity(own, "b").channel_credentials()
    assert ask(a, verifier, dial(credentials, "a")) == ["b"]
    refused = refused_call(a, verifier, dial(credentials, "b"))
    assert refused.code() == grpc.StatusCode.UNAVAILABLE


def test_a_server_of_another_authority_is_not_believed(own, verifier):
    """It has the right name, and would let us in."""
    stranger, ours = identity(own, "a", "foreign"), identity(own, "b")
    both = stranger.ca_pem + ours.ca_pem
    lax = grpc.ssl_server_credentials([(stranger.key_pem, stranger.cert_pem)], both, require_client_auth=True)

    class Lax:
        def server_credentials(self):
            return lax

    refused = refused_call(Lax(), verifier, dial(ours.channel_credentials(), "a"))
    assert refused.code() == grpc.StatusCode.UNAVAILABLE


def test_a_revoked_client_is_refused_call_by_call(own, verifier):
    """TLS knows nothing of our list: the handler asks."""
    b = identity(own, "b")
    certs.revoke(own / "ca", "b")
    assert verifier.reload()
    refused = refused_call(identity(own, "a"), verifier, dial(b.channel_credentials(), "a"))
    assert (refused.code(), refused.details()) == (grpc.StatusCode.PERMISSION_DENIED, "revoked")
