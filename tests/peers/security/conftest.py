"""Authorities and certificates, made once."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from support.credentials_kit import make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """One authority with peers a and b, another one with a stranger that calls itself a."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def own(world, tmp_path):
    """The same world for a test that changes it."""
    return Path(shutil.copytree(world, tmp_path / "world"))
