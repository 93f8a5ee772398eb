"""Which neighbours the learner shall have edges to: their names, and their numbers in messages."""

from collections.abc import Collection

from gadget_svm.peers.membership.overlay import node_id


class EdgeSet:
    """The wanted edges of one node. Of two names with one number, the node's own included, one is left out."""

    def __init__(self, me: str) -> None:
        self._me, self._asked = me, frozenset[str]()
        self.names: dict[int, str] = {}  # by number
        self.numbers: dict[str, int] = {}  # by name
        self.clashes: tuple[str, ...] = ()  # the names that are left out

    def replace(self, names: Collection[str]) -> list[int] | None:
        """Replace the edges; return the numbers of those that are gone, or None if nothing has changed."""
        asked = frozenset(names)
        if asked == self._asked:
            return None
        self._asked, before = asked, self.names
        found = {node_id(self._me): self._me}
        for name in sorted(asked, key=lambda name: (name not in self.numbers, name)):  # an edge that exists stays
            found.setdefault(node_id(name), name)
        del found[node_id(self._me)]
        self.names, self.numbers = found, {name: number for number, name in found.items()}
        self.clashes = tuple(sorted(asked.difference(self.numbers)))
        return [number for number, name in before.items() if found.get(number) != name]
