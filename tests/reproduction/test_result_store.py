"""Finished results are kept on disk and found again."""

import json
from functools import partial
from pathlib import Path

import pytest

from gadget_svm.reproduction import trials
from gadget_svm.reproduction.trials import SOURCES, stored

KEY = {"method": "m", "data": "d", "trial": 0, "lam": 0.1}


@pytest.fixture
def store(tmp_path):
    """The results in a folder, as a function of key and computation."""
    return partial(stored, tmp_path)


def test_cell_is_computed_once(store):
    calls = []
    for _ in range(3):
        assert store(KEY, lambda: calls.append(1) or {"x": 1.5}) == {"x": 1.5}
    assert len(calls) == 1


@pytest.mark.parametrize("change", [{"trial": 1}, {"lam": 0.2}, {"extra": True}])
def test_another_key_is_another_cell(store, change):
    store(KEY, lambda: {"x": 1})
    assert store(KEY | change, lambda: {"x": 2}) == {"x": 2}


@pytest.mark.parametrize("damage", ["", "{", '{"result": {"x": 9}}', "[1]", None, {}])
def test_damaged_cell_is_computed_again(store, tmp_path, damage):
    store(KEY, lambda: {"x": 1})
    (file,) = tmp_path.glob("*.json")
    whole = json.loads(file.read_text())
    file.write_text(damage if isinstance(damage, str) else json.dumps(whole | {"result": damage}))
    assert store(KEY, lambda: {"x": 2}) == {"x": 2}
    assert json.loads(file.read_text())["result"] == {"x": 2}


def test_failed_cell_leaves_nothing(store, tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store(KEY, interrupted)
    assert not list(tmp_path.iterdir())


def test_digest_covers_modules_that_exist():
    package = Path(trials.__file__).parents[1]
    assert [pattern for pattern in SOURCES if not list(package.glob(pattern))] == []
