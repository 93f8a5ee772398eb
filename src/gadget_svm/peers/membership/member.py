"""What a peer says about a peer: one entry of a view. Knows nothing of the wire, of clocks or of what is believed."""

from dataclasses import dataclass
from enum import IntEnum

LARGEST = (1 << 62) - 1
"""The highest incarnation and the highest beat that messages may carry."""


class State(IntEnum):
    """The state of a member as its speaker sees it; the numbers are those on the wire."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A peer, as of its beat in its incarnation. All that follows ``state`` is what the peer says of itself."""

    name: str
    address: str
    incarnation: int
    beat: int
    state: State = State.ALIVE
    rows: float = 0.0
    loss: float = 0.0
    slack: float = 0.0
    objective: float = 0.0
    reachable: bool = True  # whether others can dial it
    certified: str = ""  # label of the certificate whose model it has saved
    rounds: int = 0  # of a private study: how many rounds of its plan it has done
