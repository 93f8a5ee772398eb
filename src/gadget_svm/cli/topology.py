"""`gadget topology`: what a graph alone decides, as a table or JSON."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from gadget_svm import spectral, topologies
from gadget_svm.cli.summary import plain


def show_topology(name: str, nodes: int, transition: str, gamma: float, seed: int, as_json: bool) -> None:
    """Build the network and print its figures."""
    if not 0 < gamma < 1:
        raise ValueError(f"--gamma is a relative error between 0 and 1, got {gamma}")
    with Console(stderr=True).status(
        f"measuring {name} on {nodes:,} nodes"
    ):  # eigenvalues of large graphs take a while
        network = topologies.build(name, nodes, seed=seed, transition=transition)
        facts = dict(plain({"topology": network.name, "gamma": gamma, **spectral.summary(network, gamma)}))
    if as_json:
        print(json.dumps(facts, allow_nan=False))
        return
    table = Table(title=f"{network.name}, {network.n:,} nodes", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in lines(facts):
        table.add_row(what, value)
    Console().print(table)


def lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures in words, unknown ones as a dash."""
    kind = "directed" if facts["directed"] else "undirected"
    span = f"{facts['degree_min']:,} / {facts['degree_mean']:.4g} / {facts['degree_max']:,}"
    return [
        ("edges", f"{facts['edges']:,} {kind}"),
        ("transition matrix B", facts["transition"]),
        ("degree min / mean / max", span),
        ("diameter", _figure(facts["diameter"]) + ("" if facts["diameter_exact"] else " at most")),
        ("period of B", _figure(facts["period"])),
        ("spectral gap 1 - beta", _figure(facts["spectral_gap"])),
        ("mixing time 1 / (1 - beta)", _figure(facts["tau_mix"])),
        (f"rounds to {facts['gamma']:g}, diffusion", _figure(facts["rounds_diffusion"])),
        (f"rounds to {facts['gamma']:g}, randomised", _figure(facts["rounds_randomised"])),
    ]


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"
