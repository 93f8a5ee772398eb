"""Reading RCV1-v2 as Lewis et al. (2004) publish it: vector files ``document id:value ...`` and the list of
topics per document; owns which documents carry a topic, nothing about training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.formats import read_table
from gadget_svm.data.tables import DataFileError, Labels, reading

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

N_FEATURES = 47236


def documents_with(topic: str, qrels: Path) -> NDArray[np.int64]:
    """The ids of the documents that ``qrels`` (lines ``topic document 1``) lists under ``topic``."""
    start = topic.encode() + b" "
    with reading(qrels) as file:
        try:
            ids = [int(line.split()[1]) for line in file if line.startswith(start)]
        except (IndexError, ValueError) as error:
            raise DataFileError(f"{qrels}: expected lines 'topic document 1' ({error})") from error
    if not ids:
        raise DataFileError(f"{qrels} lists no document under {topic}: is it rcv1-v2.topics.qrels?")
    return np.array(ids, dtype=np.int64)


def read_vectors(paths: Sequence[Path], positive: NDArray[np.int64]) -> tuple[csr_matrix, Labels]:
    """The files' rows one after the other, labelled +1 where the document is among ``positive``."""
    from scipy.sparse import vstack

    # The document id stands where svmlight has the label, so the same reader serves.
    tables = [read_table(path, n_features=N_FEATURES, zero_based=False) for path in paths]
    ids: NDArray[Any] = np.concatenate([y for _, y in tables])
    X = tables[0][0] if len(tables) == 1 else vstack([X for X, _ in tables], format="csr")
    return X, np.where(np.isin(ids, positive), 1, -1)
