"""Compiled kernels: imported on use, kept in one directory, announced, and never in the way."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gadget_svm import GadgetSVC, save_model
from gadget_svm.kernels import cache, threads

DRAW = "from gadget_svm.kernels import draw; print(draw(0, 1, 2, 3))"


def run(code, **environment):
    """A fresh process; a variable that is None is removed."""
    given = {key: value for key, value in {**os.environ, **environment}.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_loading_and_predicting_import_no_compiler(tmp_path):
    X, y = np.array([[1.0, 2.0], [-1.0, 0.0], [2.0, 1.0], [-2.0, -1.0]]), [1, 0, 1, 0]
    save_model(GadgetSVC(n_nodes=2, stopping=None, max_iter=2, random_state=0).fit(X, y), tmp_path / "m.safetensors")
    folder = tmp_path / "kernels"
    run(
        "import sys\n"
        "from gadget_svm import load_model\n"
        f"model = load_model({str(tmp_path / 'm.safetensors')!r})\n"
        "assert model.predict([[1.0, 2.0]]) == model.node(0).predict([[1.0, 2.0]]) == [1]\n"
        "assert 'numba' not in sys.modules",
        NUMBA_CACHE_DIR=str(folder),
    )
    assert not folder.exists()


@pytest.mark.parametrize("nowhere", [{"NUMBA_CACHE_DIR": "/dev/null/cache"}, {"XDG_CACHE_HOME": "/dev/null"}])
def test_without_a_writable_directory_kernels_are_compiled_in_memory(nowhere):
    done = run(DRAW, **{"NUMBA_CACHE_DIR": None, **nowhere})
    assert 0.0 <= float(done.stdout) < 1.0
    assert "in every process" in done.stderr
    assert "NUMBA_CACHE_DIR" in done.stderr


def test_kernels_of_other_versions_that_were_not_used_for_long_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    ages = {"kernels-0123456789abcdef": 31, "kernels-fedcba9876543210": 29, "kernels-of-others": 99, "else": 99}

    def grow_old():
        for name, days in ages.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "file").touch()
            os.utime(tmp_path / name, (time.time() - days * 24 * 3600,) * 2)

    grow_old()
    ours = cache.directory.__wrapped__()
    assert {path.name for path in tmp_path.iterdir()} == {ours.name, *list(ages)[1:]}
    grow_old()
    os.utime(ours, (0, 0))
    assert cache.directory.__wrapped__() == ours
    assert time.time() - ours.stat().st_mtime < 3600  # used now
    assert (tmp_path / "kernels-0123456789abcdef").exists()  # nothing new was made
    shutil.rmtree(ours)
    monkeypatch.setattr(shutil, "rmtree", pytest.fail)
    monkeypatch.setattr(Path, "iterdir", lambda _: (_ for _ in ()).throw(PermissionError("no")))
    assert cache.directory.__wrapped__() == ours  # what cannot be looked at is no error


def test_the_first_compilation_is_announced_once_and_kept(tmp_path):
    first, second = (run(DRAW, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stderr.count("compiling numerical kernels") == 1
    assert str(tmp_path) in first.stderr
    assert second.stderr == ""
    assert first.stdout == second.stdout


def test_the_announcement_can_be_silenced(tmp_path):
    quiet = "import logging; logging.getLogger('gadget_svm').setLevel(logging.ERROR)\n"
    assert run(quiet + DRAW, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


def test_a_damaged_file_is_compiled_again(tmp_path):
    first = run(DRAW, NUMBA_CACHE_DIR=str(tmp_path))
    for path in tmp_path.glob("*/*.nbc"):
        path.write_bytes(b"")
    assert run(DRAW, NUMBA_CACHE_DIR=str(tmp_path)).stdout == first.stdout


def test_the_directory_depends_on_contents_not_on_times(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    source = tmp_path / "kernels" / "one.py"
    monkeypatch.setattr(cache, "PACKAGE", tmp_path)
    hashes = []
    for text, moment in (("a = 1", 1), ("a = 1", 2), ("a = 2", 2)):
        source.write_text(text)
        os.utime(source, (moment, moment))
        hashes.append(cache.source_hash.__wrapped__())
    assert hashes[0] == hashes[1] != hashes[2]


def test_no_number_of_threads_means_as_many_as_are_allowed(monkeypatch):
    from joblib import Parallel, delayed, parallel_config

    monkeypatch.setattr(threads, "_cores", lambda: 8)
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_limits_of_pools", list)
    assert threads.ThreadTeam.of(None).size == 8
    with parallel_config(backend="threading", n_jobs=3):
        assert threads.ThreadTeam.of(None).size == 3
    inside = Parallel(n_jobs=2, backend="threading")(delayed(threads.allowed_threads)() for _ in range(2))
    assert inside == [1, 1]
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    assert threads.ThreadTeam.of(None).size == 2
    assert threads.ThreadTeam.of(-1).size == 8


def test_limits_of_threadpoolctl_are_kept():
    with threadpool_limits(1):
        assert threads.ThreadTeam.of(None).size == 1


def test_a_process_worker_of_joblib_uses_its_share():
    from joblib import Parallel, cpu_count, delayed

    inside = Parallel(n_jobs=2, backend="loky")(delayed(threads.allowed_threads)() for _ in range(2))
    assert max(inside) <= max(1, cpu_count() // 2)


def test_a_default_fit_compiles_its_ticks_and_certificates_alone(tmp_path):
    """The rest is done by numpy and scipy."""
    run(
        "from sklearn.datasets import load_iris\n"
        "from gadget_svm import GadgetSVC\n"
        "model = GadgetSVC(random_state=0).fit(*load_iris(return_X_y=True))\n"
        "assert model.gap_bound_ is not None",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    kept = {path.name.split(".")[1].split("-")[0] for path in tmp_path.glob("*/*.py*[0-9].nbi")}
    assert kept == {"broadcast_ticks", "add_rows"}


@pytest.mark.parametrize("quiet", [True, False])
def test_compilation_is_announced_unless_told_to_be_quiet(tmp_path, quiet):
    """The fit stands for one that compiles: it needs a single small kernel."""
    words = ["train", "digits", *["--quiet"] * quiet]
    done = run(
        "from gadget_svm import GadgetSVC\n"
        "from gadget_svm.cli.app import app\n"
        "from gadget_svm.kernels import draw\n"
        "GadgetSVC.fit = lambda *_, **__: exit(draw(0, 1, 2, 3) >= 1)\n"
        f"app({words!r}, standalone_mode=False)",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert list(tmp_path.glob("*/*.nbc"))
    assert ("compiling" not in done.stderr) == quiet
