"""Files and a training that several tests of the command line share."""

import pytest

from support.cli_kit import QUICK, gadget, write_rows


@pytest.fixture(scope="session")
def train_file(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "train.svm")


@pytest.fixture(scope="session")
def test_file(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "test.svm", rows=50, seed=1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, train_file, test_file):
    """A training with every kind of output, and its folder."""
    out = tmp_path_factory.mktemp("run") / "deep" / "out"
    result = gadget("train", train_file, "--test", test_file, *QUICK, "--json", "--out", out)
    assert result.exit_code == 0, result.stderr
    return result, out
