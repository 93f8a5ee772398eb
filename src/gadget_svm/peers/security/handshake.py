"""The handshake of one link: each end proves that it holds the key of its certificate, to this other end only.

Each end sends a `Challenge` (a new nonce and its certificate), and then its `Hello` with a signature over the roles of
both ends, both nonces, both certificates and the hello. What that prevents, beyond TLS: gRPC does not show a client the
server's certificate, so a client knows only that some peer of our authority answers at an address. A peer that passes
frames on between two others is found out:

- it shows the certificate of another peer: the server compares it with that of the TLS connection;
- it passes on between two clients, or a client's frames back to itself: a client accepts only a server's signature;
- it repeats what was signed for another link, or for another peer: the nonces or the certificates are different.

Pure: the caller supplies the nonce and the time, and moves the frames.
"""

from hashlib import sha256

from gadget_svm.peers.security.credentials import Credentials, Identity, Verifier
from gadget_svm.peers.security.errors import UntrustedError
from gadget_svm.peers.wire.codec import decode_hello, encode_hello
from gadget_svm.peers.wire.limits import Limits, MalformedError
from gadget_svm.peers.wire.messages import Challenge, Hello, SignedHello


class Handshake:
    """One end of a handshake. ``nonce``: 32 new random bytes. ``expect``: the name that must answer, or None."""

    def __init__(
        self, credentials: Credentials, verifier: Verifier, limits: Limits, *, nonce: bytes, dialled: bool,
        expect: str | None = None,
    ) -> None:  # fmt: skip
        self.challenge = Challenge(nonce, credentials.cert_pem)
        self._credentials, self._verifier, self._limits = credentials, verifier, limits
        self._dialled, self._expect = dialled, expect
        self._theirs: Challenge | None = None

    def receive_challenge(self, theirs: Challenge, now: float, tls_certificate: bytes | None = None) -> Identity:
        """Return who the other end claims to be; its hello must still prove it.

        ``tls_certificate``: what the TLS connection shows. A server must give it; a client cannot.
        """
        if not self._dialled and tls_certificate is None:
            raise UntrustedError("stranger", "the other end has shown no certificate")
        identity = self._verifier.check(theirs.certificate, now)
        if tls_certificate is not None and self._verifier.check(tls_certificate, now).serial != identity.serial:
            raise UntrustedError("stranger", f"a certificate of {identity.name!r} on a connection with another one")
        if self._expect is not None and identity.name != self._expect:
            raise UntrustedError("stranger", f"{identity.name!r} answers where {self._expect!r} was expected")
        self._theirs = theirs
        return identity

    def sign(self, hello: Hello) -> SignedHello:
        """Sign our hello. The other end's challenge must have been received."""
        data = encode_hello(hello, self._limits)
        return SignedHello(data, self._credentials.sign(self._transcript(data, ours=True)))

    def verify(self, signed: SignedHello, now: float) -> Hello:
        """Return the other end's hello if its signature is right and it is in the signer's own name."""
        transcript = self._transcript(signed.hello, ours=False)
        assert self._theirs is not None
        identity = self._verifier.check_signature(self._theirs.certificate, transcript, signed.signature, now)
        hello = decode_hello(signed.hello, self._limits)
        if hello.name != identity.name:
            raise MalformedError("name", f"{identity.name} speaks in the name of {hello.name}")
        return hello

    def _transcript(self, hello: bytes, ours: bool) -> bytes:
        if self._theirs is None:
            raise UntrustedError("stranger", "a hello before a challenge")
        role = b"client\0" if self._dialled is ours else b"server\0"
        signer, reader = (self.challenge, self._theirs) if ours else (self._theirs, self.challenge)
        both = (each.nonce + sha256(each.certificate).digest() for each in (signer, reader))
        return role + b"".join(both) + hello
