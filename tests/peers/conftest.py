"""A town for tests of peers, where what peers need is installed."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def town(tmp_path: Path) -> Any:
    """An authority and room for sites."""
    for needed in ("grpc", "google.protobuf", "cryptography", "pydantic", "prometheus_client"):
        pytest.importorskip(needed)
    from kit import Town

    return Town(tmp_path)
