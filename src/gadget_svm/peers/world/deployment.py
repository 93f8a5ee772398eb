"""Where simulated peers are: their addresses, whom they dial first, and when they start.

Owns that a network can find together: the addresses that survivors are told link all of them, so that the loss of peers
before anybody was introduced is no end of the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gadget_svm.peers.world.fault_injection import Roles
from gadget_svm.peers.world.randomness import generator, within
from gadget_svm.peers.world.scenario import Scenario

START_SPREAD_S = 1.0
SEEDS = 2
"""Addresses that a peer is told; one more if those lead to no survivor."""


@dataclass(frozen=True)
class Deployment:
    """Of one peer. One that accepts no connection has no address, and may not know it."""

    address: str
    told: str  # the address that its settings say
    join: tuple[str, ...]
    start: float

    @property
    def reachable(self) -> bool | None:
        """What its settings say about that."""
        return None if self.told else False


def draw_deployments(scenario: Scenario, roles: Roles, seed: int) -> dict[str, Deployment]:
    """Return the place of every peer."""
    rng, names = generator(seed, "addresses"), roles.names
    hidden = round(within(rng, scenario.outbound_only) * len(names))
    closed = set(rng.sample(names, min(hidden, len(names) - 1)))
    if closed.issuperset(roles.survivors):
        closed.remove(roles.survivors[0])
    addresses = {name: f"{name}:7400" for name in names if name not in closed}
    places = {name: _place(name, addresses, roles, seed) for name in names}
    return places | _introduced(places, roles.survivors)


def _place(name: str, addresses: Mapping[str, str], roles: Roles, seed: int) -> Deployment:
    rng, address = generator(seed, "peer", name), addresses.get(name, "")
    knows_it = rng.random() < 0.5  # whether a site without an address was told so
    others = [other for each, other in addresses.items() if each != name]
    join = tuple(rng.sample(others, min(SEEDS, len(others))) if rng.random() < 0.5 else others[:SEEDS])
    told = address or ("" if knows_it else f"{name}:7400")
    return Deployment(address, told, join, roles.late.get(name, rng.uniform(0.0, START_SPREAD_S)))


def _introduced(places: Mapping[str, Deployment], survivors: list[str]) -> dict[str, Deployment]:
    """Return the places of survivors that have to know one more: the first survivor that accepts connections."""
    first = next(name for name in survivors if places[name].address)
    open_to = {places[name].address: name for name in survivors if places[name].address}
    linked = {name: {open_to[address] for address in places[name].join if address in open_to} for name in survivors}
    changed = {}
    for name in survivors:
        if name != first and (not linked[name] or name not in _reached(first, linked)):
            changed[name] = replace(places[name], join=(places[first].address, *places[name].join))
            linked[name] = {open_to[address] for address in changed[name].join if address in open_to}
    return changed


def _reached(first: str, linked: Mapping[str, set[str]]) -> set[str]:
    """Return all who are linked to one, in either direction."""
    found, new = set[str](), {first}
    while new:
        found |= new
        new = {a for a in linked if a not in found and (linked[a] & found or any(a in linked[b] for b in found))}
    return found
