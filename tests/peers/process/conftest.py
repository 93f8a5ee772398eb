"""Certificates for tests of the process host, where what peers need is installed."""

from pathlib import Path
from typing import Any

import pytest

NEEDED = ("grpc", "google.protobuf", "cryptography", "prometheus_client", "aiohttp")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An authority that tests share. None of its certificates may be revoked or replaced."""
    return _new(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture
def own_certificates(tmp_path: Path) -> Any:
    """An authority of one test."""
    return _new(tmp_path / "ca")


def _new(folder: Path) -> Any:
    for needed in NEEDED:
        pytest.importorskip(needed)
    from support.peer_process_kit import Certificates

    return Certificates(folder)
