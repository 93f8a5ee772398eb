"""A town for tests of peers, where what peers need is installed."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def town(tmp_path: Path) -> Any:
    """An authority and room for sites."""
    for needed in ("grpc", "google.protobuf", "cryptography", "pydantic", "prometheus_client"):
        pytest.importorskip(needed)
    from support.peer_kit import Town

    return Town(tmp_path)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A peer that runs in this process sets up logging for all of it; the next test begins without that."""
    root, ours = logging.getLogger(), logging.getLogger("gadget_svm")
    levels, handlers = (root.level, ours.level), list(root.handlers)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(False)
