"""`python -m benchmarks [NAME ...] [--quick]`: all benchmarks, or those named, one after another."""

import argparse
import importlib

from benchmarks.common import say

NAMES = (
    "node_iteration", "memory", "accuracy", "certified_fit", "first_fit", "limit", "scale", "gap_time", "gap_exchanges",
    "hardship", "poisoning", "private", "attacks", "multi_class", "paper_scale", "ticks_by_nodes", "peer_messages",
    "peer_firewall", "peer_rest", "peer_seeds", "peer_wan", "ray_rounds", "actor_memory",
)  # fmt: skip
LONG = ("ticks_by_nodes", "peer_firewall", "peer_rest", "peer_seeds", "peer_wan", "ray_rounds", "actor_memory")
"""Left out of a quick run of all."""


def main() -> None:
    """Run what was asked for; results of a quick run go to a folder of their own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, in all less than two minutes")
    order = parser.parse_args()
    unknown = [name for name in order.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}: there are {', '.join(NAMES)}")
    for name in order.names or [name for name in NAMES if not (order.quick and name in LONG)]:
        say(f"== {name}")
        importlib.import_module(f"benchmarks.{name}").main(quick=order.quick)
    say("== done")


if __name__ == "__main__":
    main()
