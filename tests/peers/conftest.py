"""What tests of peers share."""

import logging
from collections.abc import Iterator

import pytest


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
