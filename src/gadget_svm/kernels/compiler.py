"""How kernels are compiled: one decorator, with the flags that bit-for-bit agreement needs.

numba is imported when the first kernel is called: loading a model and predicting need no compiler.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""If True, kernels are plain Python functions, which a debugger can step through."""


class Kernel:
    """A function that is compiled when it is first called, from Python or from another kernel."""

    def __init__(self, function: Callable[..., Any], counts_references: bool = True) -> None:
        functools.update_wrapper(self, function)
        self._counts_references = counts_references

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The dispatcher for calls from Python."""
        return self._make()

    @functools.cached_property
    def inner(self) -> Any:
        """The dispatcher for calls from kernels. It has no wrapper for Python, and so compiles faster."""
        return self._make(no_cpython_wrapper=True)

    @property
    def _numba_type_(self) -> Any:
        """The type that numba sees if a kernel calls this one."""
        return self.inner._numba_type_

    def _make(self, **options: bool) -> Any:
        import numba

        from gadget_svm.kernels.cache import attach_cache

        flags = {"nogil": True, "error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True}
        flags["_nrt"] = self._counts_references  # given always: else it is that of the calling kernel
        dispatcher = numba.njit(**flags, **options)(self.__wrapped__)  # type: ignore[attr-defined]
        attach_cache(dispatcher, "inner" if options else "")
        return dispatcher

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)

    def __reduce__(self) -> str:
        return cast(str, self.__qualname__)  # type: ignore[attr-defined]


class LowLevel:
    """An intrinsic or an external function, made when a kernel that uses it is compiled."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @functools.cached_property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        made, context = self._make(), cpu_target.typing_context
        context.refresh()  # so that it knows the new function
        return context.resolve_value_type(made)


def compiled(function: F) -> F:
    """Return a kernel that numba compiles on the first call.

    The compiled code is cached on disk, runs without the interpreter's lock, and keeps to strict IEEE arithmetic.
    """
    return function if DISABLED else cast(F, Kernel(function))


def allocation_free(function: F) -> F:
    """Do as `compiled` does, for a function that neither creates an array nor calls a function that returns one.

    The compiled code does not count references to arrays. In a function that is called for each row, the counting would
    take as long as the work on a short row.
    """
    return function if DISABLED else cast(F, Kernel(function, counts_references=False))
