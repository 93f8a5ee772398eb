"""Errors about certificates, and reading a peer's files with errors that name the file and the fix."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm

BAD = (ValueError, TypeError, UnsupportedAlgorithm)
"""What cryptography raises for damaged bytes."""


class CredentialsError(ValueError):
    """Why a peer cannot start with these files, or the authority cannot sign, and how to fix that."""


class UntrustedError(Exception):
    """A certificate or signature that is refused.

    ``reason`` is "expired", "revoked", "stranger" (not of our authority, or not the one that was expected) or
    "nameless". ``name`` is whose certificate has expired or is revoked.
    """

    def __init__(self, reason: str, text: str = "", name: str = "") -> None:
        super().__init__(text or reason)
        self.reason, self.name = reason, name


def require(good: bool, text: str) -> None:
    """Raise a `CredentialsError` with this text unless all is good."""
    if not good:
        raise CredentialsError(text)


def read_file(path: Path, key: str) -> bytes:
    """Read a file of a peer, which its configuration names as tls.KEY."""
    fix = f"'gadget certs issue NAME' writes it, tls.{key} says where it is"
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CredentialsError(f"{path} (tls.{key}) does not exist: {fix}") from error
    except OSError as error:
        fix = "change its owner or mode"
        raise CredentialsError(f"{path} (tls.{key}) cannot be read ({error.strerror}): {fix}") from error


def day(moment: float) -> str:
    """Return a date and time for people."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
