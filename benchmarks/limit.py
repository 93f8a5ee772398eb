"""Bytes that the mixing kernels move in a second, beside a plain copy by as many threads: how near the limit they are.

Counted are the vectors with their weights, each time they must be read or written, and nothing else. The time is that
of the kernels, and also that of the whole round, with drawing neighbours and sorting the messages.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Table, bars, publish_tables, ratio, say
from gadget_svm import build_network
from gadget_svm.core.network import Network
from gadget_svm.kernels import ThreadTeam, fused_averaging
from gadget_svm.kernels import gossip as moves

SHAPES = ((100, 47_236), (100_000, 123), (1_000_000, 16))
QUICK = ((50, 47_236), (30_000, 123), (300_000, 16))
REPEATS = 7
Work = Callable[[], Any]


class Round(NamedTuple):
    """A round: its preparation, moving the vectors, and the bytes that must be moved at least."""

    prepare: Work
    mix: Work
    moved: int


def main(quick: bool = False) -> None:
    """Measure every kernel on every shape, in turn, and take the best of some times."""
    table = Table(
        [
            "nodes x features",
            "threads",
            "what",
            "MB a round",
            "GB/s with drawing and sorting",
            "GB/s",
            "plain copy, GB/s",
            "whole round / copy",
            "mixing / copy",
        ]
    )
    for nodes, features in QUICK if quick else SHAPES:
        say(f"limit: {nodes:,} x {features:,}")
        network = build_network("random-regular", nodes)
        for threads in sorted({1, ThreadTeam.of(None).size}):
            _measure(table, network, features, ThreadTeam(threads))
    notes = [
        "Random 4-regular graphs. A message is written and read once more than in the compiled rounds of "
        "`average`: Push-Sum by messages moves six vectors a node, compiled three. Diffusion sends one along each "
        "edge. A copy reads one and writes one. Rows of 17 numbers, anywhere in memory, lie on three or four lines of "
        "cache, and fill two: there the kernels read half as much again as is counted.",
    ]
    publish_tables("limit", "The mixing kernels beside a plain copy", notes, [table],
                   lambda figure: _draw(figure, table), quick)  # fmt: skip


def _measure(table: Table, network: Network, features: int, team: ThreadTeam) -> None:
    rounds = _rounds(network, features, team)
    mixing, whole = dict.fromkeys(rounds, np.inf), dict.fromkeys(rounds, np.inf)
    for repeat in range(REPEATS + 1):
        for what, one in rounds.items():
            started = time.perf_counter()
            one.prepare()
            ready = time.perf_counter()
            one.mix()
            ended = time.perf_counter()
            if repeat:  # the first time compiles
                mixing[what] = min(mixing[what], ended - ready)
                whole[what] = min(whole[what], ended - started)
    team.close()
    copy = rounds.pop("copy").moved / mixing["copy"]
    for what, one in rounds.items():
        pace, slower = one.moved / mixing[what], one.moved / whole[what]
        table.add(f"{network.n:,} x {features:,}", team.size, what, one.moved / 1e6, slower / 1e9, pace / 1e9,
                  copy / 1e9, ratio(slower, copy), ratio(pace, copy))  # fmt: skip


def _rounds(network: Network, features: int, team: ThreadTeam) -> dict[str, Round]:
    """A round of every kind, by name."""
    n, edges, one = network.n, network.n_edges, 8 * (features + 1)
    s, phi, alive = np.random.default_rng(0).random((n, features)), np.ones(n), np.ones(n, dtype=bool)
    messages, weight = np.empty((n, features)), np.empty(n)
    edge_vectors, edge_weights = np.empty((edges, features)), np.empty(edges)
    state = np.column_stack([s, phi])
    other, receiver = np.empty_like(state), np.empty(n, np.int32)
    ids, pulled = np.arange(n, dtype=np.int32), (receiver, receiver)
    in_ptr, source, _ = network.by_receiver(np.zeros(edges, np.int8))
    senders, everyone, zeros = network.sources, np.arange(n), np.zeros(edges, dtype=np.int64)
    targets = network.indices.astype(np.int64)
    drawn, order = everyone, (receiver, receiver)  # of the round under way

    def draw() -> None:
        nonlocal drawn, order
        phi[:] = 1.0  # or all is halved away
        drawn = moves.draw_edges(alive, 0, network.indptr, network.draw_table, 0, 1)
        order = moves.order_messages(targets[drawn], everyone, zeros[:n], 0, n)

    def push_sum() -> None:
        team.run(moves.halve, n, features, drawn, s, phi, messages, weight)
        team.run(moves.absorb, n, features, *order, zeros, 0, messages, weight, s, phi)

    def draw_compiled() -> None:
        nonlocal pulled
        team.run(
            fused_averaging.draw_receivers,
            n,
            features,
            network.indptr,
            network.indices,
            network.draw_table,
            0,
            1,
            state,
            receiver,
        )
        pulled = moves.order_messages(receiver, ids, ids, 0, n)

    def push_sum_compiled() -> None:
        team.run(fused_averaging.pull_halves, n, features, receiver, *pulled, state, other)

    def sort() -> None:
        nonlocal order
        order = moves.order_messages(targets, senders, zeros, 0, n)

    def diffusion() -> None:
        team.run(moves.send_shares, n, features, alive, network.indptr, network.share, network.self_share, s, phi,
                 edge_vectors, edge_weights)  # fmt: skip
        team.run(moves.absorb, n, features, *order, zeros, 0, edge_vectors, edge_weights, s, phi)

    def diffusion_compiled() -> None:
        team.run(
            fused_averaging.pull_shares, n, features, in_ptr, source, True, network.even_share, network.self_share,
                 state, other)  # fmt: skip

    return {
        "Push-Sum, by messages (GADGET)": Round(draw, push_sum, 6 * n * one),
        "Push-Sum, compiled (average)": Round(draw_compiled, push_sum_compiled, 3 * n * one),
        "diffusion, by messages": Round(sort, diffusion, (2 * edges + 4 * n) * one),
        "diffusion, compiled (average)": Round(_nothing, diffusion_compiled, (edges + 2 * n) * one),
        "copy": Round(_nothing, lambda: team.run(_copy, n, features, s, messages), 2 * s.nbytes),
    }


def _nothing() -> None:
    """Prepare nothing."""


def _copy(lo: int, hi: int, source: np.ndarray, target: np.ndarray) -> None:
    np.copyto(target[lo:hi], source[lo:hi])


def _draw(figure: Any, table: Table) -> None:
    axis = figure.subplots()
    most = max(table.column("threads"))
    rows = [row for row in table.rows if row[1] == most]
    names = [f"{row[0]}\n{row[2]}" for row in rows]
    colours = ["tab:blue", "tab:cyan", "tab:orange", "gold"] * len(rows)
    bars(
        axis, names, [row[-1] for row in rows], 0.5, colours, f"bytes a second, part of a plain copy's ({most} threads)"
    )


if __name__ == "__main__":
    main()
