"""Parts by name: the members of this package, and those that other packages offer through entry points."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, TypeVar

from gadget_svm.core.lookup import lookup, require_instance

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """A table of parts of one kind, such as gossip protocols.

    A package adds a part without editing this one: it names the part in its ``pyproject.toml``. The entry point's value
    is what the table holds, for example a class.

    Parameters
    ----------
    group : str
        The entry point group, such as "gadget_svm.gossip".
    members : mapping of str to part
        The parts of this package. An entry point never replaces one of them.

    Attributes
    ----------
    builtin : dict of str to part
        The parts of this package.

    Raises
    ------
    ImportError
        When a part of another package is looked up and cannot be imported.

    Examples
    --------
    >>> colours = Registry("example.colours", {"red": 0xFF0000})
    >>> colours["red"], "green" in colours, list(colours)
    (16711680, False, ['red'])
    """

    def __init__(self, group: str, members: Mapping[str, T]) -> None:
        self.group = group
        self.builtin = dict(members)
        self._members = dict(members)

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            self._members[name] = self._loaded(self._outside[name])
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._members, **self._outside})

    def __len__(self) -> int:
        return len({**self._members, **self._outside})

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in self._outside

    def resolve(self, kind: str, given: object, base: Any, example: str) -> Any:
        """Return the part that ``given`` names, or the part itself if it is given as an object.

        Raises
        ------
        ValueError
            If no part of this ``kind`` has the name.
        TypeError
            If it is neither a name nor an instance of ``base``, or cannot be made from its name alone.
        """
        found = given
        if isinstance(given, str):
            make: Any = lookup(kind, given, self)
            try:
                signature(make).bind()
            except TypeError as error:
                raise TypeError(
                    f"{kind} {given!r} cannot be made from its name alone ({error}): give an object instead of the "
                    "name, or give its parameters defaults"
                ) from error
            found = make()
        names, public = ", ".join(self), f"{base.__module__.rpartition('.')[0]}.{base.__name__}"
        expected = f"{kind} is a name ({names}) or an instance of a class that derives from {public}"
        require_instance(found, base, expected, example)
        return found

    def _loaded(self, point: EntryPoint) -> T:
        try:
            part: T = point.load()
        except Exception as error:  # whatever the code of the other package raises
            package = f"package {point.dist.name}" if point.dist else "package that declares it"
            raise ImportError(
                f"{point.name!r} is the entry point {point.value!r} of the group {self.group}, which cannot be "
                f"imported ({type(error).__name__}: {error}): correct or uninstall the {package}"
            ) from error
        return part

    @cached_property
    def _outside(self) -> dict[str, EntryPoint]:
        """The entry points of other packages, which are searched on first use."""
        return {point.name: point for point in entry_points(group=self.group)}
