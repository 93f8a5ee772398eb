"""Settings as scikit-learn asks for them, so that an algorithm can be cloned, searched over and printed.

`sklearn.base.BaseEstimator` would do; but to import it takes longer, and more memory, than all the rest that a process
of its own needs which only runs an algorithm.
"""

from inspect import Parameter, signature
from typing import Any, Self

from gadget_svm.core.lookup import unknown


class Params:
    """A class whose ``__init__`` takes its settings by name and keeps each, as it is, under that name."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        if cls.__init__ is Params.__init__:
            return {}
        parameters = list(signature(cls.__init__).parameters.values())[1:]
        return {each.name: each.default for each in parameters if each.kind is not Parameter.VAR_KEYWORD}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no setting has settings of its own
        """Every setting by name."""
        return {name: getattr(self, name) for name in sorted(self._defaults())}

    def set_params(self, **params: Any) -> Self:
        """Other values for some of the settings."""
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ValueError(unknown(f"setting of {type(self).__name__}", name, known))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        known = self._defaults()
        said = (f"{name}={getattr(self, name)!r}" for name in known if not _same(getattr(self, name), known[name]))
        return f"{type(self).__name__}({', '.join(said)})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
