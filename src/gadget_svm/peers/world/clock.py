"""The clocks of one simulated machine. They may run fast or slow and jump; the monotonic one never goes backwards."""

WALL_AT_START = 1_800_000_000.0
"""The time of day at virtual time 0, in seconds since 1970."""


class MachineClock:
    """A monotonic clock and a time of day, as functions of virtual time."""

    def __init__(self, start: float, rate: float = 1.0) -> None:
        self.start, self.rate, self.wall_offset = start, rate, 0.0

    def monotonic(self, virtual: float) -> float:
        """Return what the machine's monotonic clock shows."""
        return self.start + self.rate * virtual

    def virtual(self, monotonic: float) -> float:
        """Return the virtual time at which the monotonic clock shows this, if it does not jump before."""
        return (monotonic - self.start) / self.rate

    def wall(self, virtual: float) -> float:
        """Return the machine's time of day."""
        return WALL_AT_START + self.wall_offset + self.rate * virtual

    def jump(self, seconds: float) -> None:
        """Set both clocks forward."""
        self.start += max(seconds, 0.0)
        self.wall_offset += max(seconds, 0.0)
