"""What was last fetched of every node. Owns all that is known of those that are lost."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Flags, Ints


class Seen:
    """Arrays with an entry per node, by name; actor ``index`` has the nodes ``bounds[index] : bounds[index + 1]``."""

    def __init__(self, bounds: Ints) -> None:
        self.bounds = bounds
        self._last: dict[str, NDArray[Any]] = {}
        self._known: dict[str, Flags] = {}

    def put_together(self, name: str, parts: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
        """The parts of actors as one array; the rest is what was last seen of it, or zeros."""
        example, known = next(iter(parts.values())), self.known(name)
        if len(parts) < len(self.bounds) - 1 and name in self._last:
            whole = self._last[name].copy()
        else:
            whole = np.zeros((int(self.bounds[-1]), *example.shape[1:]), dtype=example.dtype)
        for index, part in parts.items():
            mine = slice(*self.bounds[index : index + 2].tolist())
            whole[mine], known[mine] = part, True
        self._last[name], self._known[name] = whole, known
        return whole

    def known(self, name: str) -> Flags:
        """Of which nodes it was ever fetched."""
        return self._known.get(name, np.zeros(int(self.bounds[-1]), dtype=np.bool_)).copy()
