"""Errors about certificates, and reading a peer's files with errors that name the file and the fix."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm

BAD = (ValueError, TypeError, UnsupportedAlgorithm)
"""What cryptography raises for damaged bytes."""


class CredentialsError(ValueError):
    """A peer cannot start with these files, and how to fix that."""


class UntrustedError(Exception):
    """A certificate or signature that is refused.

    ``reason`` is "expired", "revoked", "stranger" (not of our authority, or not the one that was expected) or
    "nameless".
    """

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


def read_file(path: Path, key: str) -> bytes:
    """Read a file of a peer, which its configuration names as tls.KEY."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CredentialsError(
            f"{path} (tls.{key}) does not exist: 'gadget certs issue NAME' writes it, tls.{key} says where it is"
        ) from error
    except OSError as error:
        raise CredentialsError(
            f"{path} (tls.{key}) cannot be read ({error.strerror}): change its owner or mode"
        ) from error


def day(moment: float) -> str:
    """Return a date and time for people."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
