"""Status and stop over gRPC, for `gadget peer status` and `gadget peer stop`: the answers, and the calls.

Whoever has a certificate of the study may ask for the status; only the peer's own certificate may stop it.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc

from gadget_svm.peers.process.config import PeerConfig
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.transport import SERVICE, Answer, channel_options, plain_reason
from gadget_svm.peers.security.errors import UntrustedError
from gadget_svm.peers.wire.codec import decode_control, encode_control
from gadget_svm.peers.wire.limits import STATUS_BYTES, MalformedError, printable

CALL_TIMEOUT_S = 10.0


class UnreachableError(ConnectionError):
    """No answer, or none from a peer that can be trusted."""


def control_answers(
    credentials: CredentialFiles, status: Callable[[], Mapping[str, Any]], stop: Callable[[str], None],
    reject: Callable[[str, str], None],
) -> dict[str, Answer]:  # fmt: skip
    """Return what a server answers to each call, from the request and the certificate of its sender."""

    def answer(method: str, request: bytes, certificate: bytes) -> bytes:
        try:
            sender, text = credentials.identify(certificate).name, decode_control(request)
            if method == "Status":
                return encode_control(json.dumps(dict(status()), allow_nan=False), reply=True)
            if sender != credentials.name:
                raise UntrustedError(
                    "name", f"only {credentials.name} itself may stop {credentials.name}, not {sender}"
                )
            stop(text or "asked to stop")
            return encode_control("leaving", reply=True)
        except (UntrustedError, MalformedError) as error:
            reject(error.reason, str(error))
            raise PermissionError(printable(str(error))) from None

    return {method: partial(answer, method) for method in ("Status", "Stop")}


def fetch_status(config: PeerConfig, address: str, name: str | None = None) -> dict[str, Any]:
    """Return the status of the peer at an address, asked with the certificate of a peer.toml.

    ``name`` is whom to expect there; None for any peer of the study.
    """
    return dict(json.loads(_call(CredentialFiles.of(config), address, name, "Status", "")))


def request_stop(config: PeerConfig, address: str, reason: str = "gadget peer stop") -> None:
    """Ask the peer of a peer.toml to leave. It stops answering when it has left."""
    _call(CredentialFiles.of(config), address, config.peer.name, "Stop", reason)


def _call(credentials: CredentialFiles, address: str, name: str | None, method: str, text: str) -> str:
    options = channel_options(STATUS_BYTES + 4096, name)
    with grpc.secure_channel(address, credentials.channel_credentials(), options) as channel:
        try:
            answer = channel.unary_unary(f"/{SERVICE}/{method}")(encode_control(text), timeout=CALL_TIMEOUT_S)
            return decode_control(answer, reply=True)
        except MalformedError as error:
            raise UnreachableError(f"{address}: {error}") from None
        except grpc.RpcError as error:
            details = plain_reason(str(error.details() or ""))
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                raise ValueError(f"{address} refuses: {details}") from None
            raise UnreachableError(f"{address}: {error.code().name.lower()}: {details}") from None
