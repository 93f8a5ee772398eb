"""Parameters as scikit-learn expects them, so that an algorithm can be cloned, searched over and printed.

`sklearn.base.BaseEstimator` would do, but importing it takes longer, and more memory, than everything else that a
process needs to run an algorithm.
"""

import numbers
from inspect import Parameter, signature
from typing import Any, Self

from gadget_svm.core.lookup import unknown


class Params:
    """A class whose ``__init__`` takes its parameters by name and stores each, unchanged, under that name."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        if cls.__init__ is Params.__init__:
            return {}
        parameters = list(signature(cls.__init__).parameters.values())[1:]
        return {each.name: each.default for each in parameters if each.kind is not Parameter.VAR_KEYWORD}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no parameter has parameters
        """Return every parameter by name."""
        return {name: getattr(self, name) for name in sorted(self._defaults())}

    def set_params(self, **params: Any) -> Self:
        """Set some parameters.

        Raises
        ------
        ValueError
            If there is no parameter of a name; then none is changed.
        """
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ValueError(unknown(f"parameter of {type(self).__name__}", name, known))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        known = self._defaults()
        shown = (f"{name}={getattr(self, name)!r}" for name in known if not _same(getattr(self, name), known[name]))
        return f"{type(self).__name__}({', '.join(shown)})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def checked_count(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number of at least ``least``, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def checked_positive(value: Any, name: str, alternative: str = "") -> float:
    """Return a positive finite number, or raise ValueError, with what else the value may be or what it means."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive number{alternative}, got {value!r}")
    return float(value)


def positive_or_auto(value: Any, name: str) -> float | None:
    """Return a positive finite number, None for "auto", or raise ValueError."""
    return None if isinstance(value, str) and value == "auto" else checked_positive(value, name, " or 'auto'")
