"""Random generators of a simulation: one for each concern, all of them functions of the seed.

A change in one concern, such as one more message, does not change what is drawn for another.
"""

import random


def generator(seed: int, *concern: object) -> random.Random:
    """Return the generator of a concern."""
    return random.Random("/".join(map(str, (seed, *concern))))


def within(rng: random.Random, limits: tuple[float, float]) -> float:
    """Draw a number between two limits."""
    low, high = limits
    return low if low == high else rng.uniform(low, high)


def whole_within(rng: random.Random, limits: tuple[int, int]) -> int:
    """Draw a whole number between two limits, which are possible too."""
    return rng.randint(*limits)
