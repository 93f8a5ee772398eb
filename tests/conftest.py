"""What several test files share: small problems, optional real data, and which tests keep out of each other's way.

Strategies are in strategies.py.
"""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings

from gadget_svm import load_dataset

for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):  # of build servers: the command line would colour its text
    os.environ.pop(name, None)
settings.register_profile("patient", deadline=None)  # the first example may compile a kernel
settings.load_profile("patient")


HEAVY = (
    "cluster/test_ray",
    "cluster/test_lost_machines",
    "test_same_bits_on_real_ray",
    "test_cli_shards",
    "test_real_peers",
    "test_network_namespaces",
    "/test_demo.py",
)
"""Files, and single tests, that start many processes or wait for peers to learn: one worker runs them one after
another, or they starve on a small machine."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers: all heavy tests to one of them, every other test to any that is free."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "heavy" if any(part in nodeid.partition("[")[0] for part in HEAVY) else nodeid

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def sigint_is_not_ignored():
    """Tests that send SIGINT pass also where the suite was started with SIGINT ignored, as a background job is."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(scope="session")
def toy():
    """Sixty rows of five features, two classes and three, and the node that owns each row in shards of 30, 20, 10."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 5))
    noise = rng.normal(size=60)
    y = (X[:, 0] - X[:, 1] + 0.5 * noise > 0).astype(int)
    three = np.digitize(X[:, 0] + 0.3 * noise, [-0.5, 0.5])
    return SimpleNamespace(X=X, y=y, three=three, sites=np.repeat([0, 1, 2], [30, 20, 10]), rng=rng)


@pytest.fixture(scope="session")
def adult():
    """The paper's Adult data, where it is at hand."""
    places = [os.environ.get("GADGET_DATA", ""), Path(__file__).parents[2] / "shared" / "data"]
    if not any(place and Path(place).is_dir() for place in places):
        pytest.skip("the paper's data sets are neither in GADGET_DATA nor in ../shared/data")
    try:
        return load_dataset("adult", download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
