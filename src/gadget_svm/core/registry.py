"""Parts by name: the members of this package, and those that other packages offer through entry points."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

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
        self._outside: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            self._members[name] = self._loaded(self._entry_points()[name])
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._members, **self._entry_points()})

    def __len__(self) -> int:
        return len({**self._members, **self._entry_points()})

    def __contains__(self, name: object) -> bool:
        return name in self._members or name in self._entry_points()

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

    def _entry_points(self) -> dict[str, EntryPoint]:
        """The entry points of the group, found at the first name that is not a member's."""
        if self._outside is None:
            self._outside = {point.name: point for point in entry_points(group=self.group)}
        return self._outside
