"""Imports of optional libraries. An error names the extra that brings a missing one."""

from importlib import import_module
from typing import Any


def require(module: str, purpose: str, extra: str) -> Any:
    """Import an optional module and return it.

    Parameters
    ----------
    module : str
        The name of the module.
    purpose : str
        The beginning of the error's sentence, such as "a report needs".
    extra : str
        The extra of gadget-svm that installs the module.

    Raises
    ------
    ImportError
        If the module, or one that it imports, is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gadget_svm"):
            raise
        fix = f"pip install 'gadget-svm[{extra}]'"
        raise ImportError(f"{purpose} {error.name}, which is not installed: {fix}") from error
