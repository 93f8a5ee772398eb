"""The folder of `gadget peer demo`: an authority, and for every peer a folder with certificate, rows and peer.toml.

Owns its names, and what is replaced: only what an earlier demo wrote.
"""

import random
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.cli.output import SUMMARY
from gadget_svm.data import Dataset
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.problem import as_csr
from gadget_svm.peers import certs, checkpoint
from gadget_svm.peers.config import template
from gadget_svm.peers.site import LEAST_ROWS

MARK, CA, TEST, LOCK = "demo.json", "ca", "test.npz", "lock"
HOST, PORTS = "127.0.0.1", range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those could take the port of an absent peer."""
VALIDITY_DAYS = 30
PACE = {"tick": 0.02, "checkpoint": 2.0, "export": 10.0}
ORPHAN_LIMIT_S = 180.0
"""If the demo was killed, each peer leaves by itself this long after the planned end."""


def check_rows(data: Dataset, peers: int) -> None:
    """Raise ValueError for rows from which peers refuse to learn."""
    rows, most = len(data.y), len(data.y) // LEAST_ROWS
    if len(np.unique(data.y)) < 2:
        raise ValueError(f"{data.name} has only one label: training needs two")
    if most < peers:
        raise ValueError(f"a peer learns from at least {LEAST_ROWS} rows: {rows} rows are for {most} peers at most")


def check_folder(out: Path) -> None:
    """Refuse a folder that holds files but no earlier demo."""
    if out.exists() and not (out / MARK).is_file() and any(path.name != LOCK for path in out.iterdir()):
        raise FileExistsError(f"--out {out} holds something else than an earlier demo: name a new folder")


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock the folder, which is made if missing, and name it in errors of files, such as that of a full disk."""
    try:
        with checkpoint.Lock.acquire(out):
            yield
    except (checkpoint.CheckpointError, OSError) as error:
        raise OSError(f"cannot write to --out {out}: {error}") from error


def clear(out: Path) -> None:
    """Mark the folder as a demo's and remove the files of an earlier one, unless one of its peers still runs."""
    (out / MARK).write_text("{}\n", encoding="utf-8")
    with ExitStack() as stack:
        for state in out.glob("peer-*/state"):
            stack.enter_context(checkpoint.Lock.acquire(state))
        for folder in (out / CA, *out.glob("peer-*")):
            if folder.is_dir():
                shutil.rmtree(folder)
        for name in (SUMMARY, TEST):
            (out / name).unlink(missing_ok=True)


def set_up(
    out: Path, data: Dataset, peers: int, *, algorithm: str, lam: float, seed: int, seconds: float
) -> list[Path]:
    """Write what each peer needs into a folder of its own; return the folders."""
    classes, label = np.unique(data.y, return_inverse=True)
    X = as_csr(data.X, intercept=False)
    shares = partition_evenly(X, label.astype(np.int32), peers, seed)
    certs.init_ca(out / CA, name="gadget peer demo", days=VALIDITY_DAYS)
    if data.X_test is not None and data.y_test is not None:
        _write_rows(out / TEST, as_csr(data.X_test, intercept=False), data.y_test)
    addresses = [f"{HOST}:{port}" for port in free_ports(peers)]
    common: dict[str, Any] = {
        "train": "train.npz", "test": None if data.X_test is None else f"../{TEST}", "features": X.shape[1],
        "classes": classes.tolist(), "run": f"demo on {data.name}"[:64], "lam": lam, "algorithm": algorithm,
        "intercept": False, "seed": seed, "join": addresses[:1], "stop_after_seconds": seconds + ORPHAN_LIMIT_S, **PACE,
    }  # fmt: skip
    folders = []
    for i in range(peers):
        name = f"peer-{i + 1}"
        folder = out / name
        certs.issue(out / CA, name, [HOST], days=VALIDITY_DAYS - 1, out=folder)
        mine = shares.order[shares.start[i] : shares.start[i + 1]]
        _write_rows(folder / "train.npz", X[mine], data.y[mine])
        text = template(name, listen=addresses[i], address=addresses[i], **common)
        (folder / "peer.toml").write_text(text, encoding="utf-8")
        folders.append(folder)
    return folders


def _write_rows(path: Path, X: sp.csr_matrix, y: NDArray[Any]) -> None:
    """Write rows with all bits, the full width, and labels of any kind."""
    labels = y.astype(str) if y.dtype.kind == "O" else y
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=labels)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free now."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            with suppress(OSError):
                held.enter_context(socket.socket()).bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(
        f"no {count} free ports on {HOST} between {PORTS.start} and {PORTS.stop}: stop the programs that use them"
    )
