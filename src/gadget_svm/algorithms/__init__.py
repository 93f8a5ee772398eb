"""The learning algorithms, by name. Written against blocks and mail; they never know where they run."""

from collections.abc import Callable
from typing import Any

from gadget_svm.algorithms.gadget import GadgetRun
from gadget_svm.algorithms.settings import Gadget
from gadget_svm.names import lookup

ALGORITHMS: dict[str, Callable[[], Gadget]] = {
    "auto": lambda: Gadget(solver="implicit", local_steps=10),  # nearer the optimum after fewer messages
    "gadget": Gadget,  # as the paper prints it
}


def resolve(algorithm: Any) -> Gadget:
    """An algorithm by name or as an instance."""
    if isinstance(algorithm, str):
        return lookup("algorithm", algorithm, ALGORITHMS)()
    if not hasattr(algorithm, "bind"):
        raise TypeError(
            f"algorithm is a name ({', '.join(ALGORITHMS)}) or an instance such as Gadget(), got {algorithm!r}"
        )
    return algorithm  # type: ignore[no-any-return]


__all__ = ["ALGORITHMS", "Gadget", "GadgetRun", "resolve"]
