"""One line of a view: what a peer says about a peer. Knows nothing of the wire, of clocks or of who is believed."""

from dataclasses import dataclass
from enum import IntEnum

LARGEST = 1 << 62
"""No incarnation and no beat is higher; what claims to be is not heard."""


class State(IntEnum):
    """How a member stands with the one who speaks of it; the numbers are those on the wire."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A peer by name, as of its beat in its incarnation; the last four are its scalars for the estimate of the gap."""

    name: str
    address: str
    incarnation: int
    beat: int
    state: State = State.ALIVE
    rows: float = 0.0
    loss: float = 0.0
    slack: float = 0.0
    objective: float = 0.0
