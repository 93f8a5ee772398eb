"""`gadget topology`: the properties of a communication graph, as a table or JSON."""

from json import dumps
from typing import Annotated, Any

import typer

from gadget_svm.cli.options import Json


def topology(
    name: Annotated[str, typer.Argument(help="Such as ring, torus:5x4 or random-regular:4.")],
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Number of nodes.", min=1)] = 10,
    transition: Annotated[str, typer.Option(help="lazy, random-walk, metropolis or max-degree.")] = "lazy",
    gamma: Annotated[float, typer.Option(help="The relative error that Push-Sum shall reach.")] = 0.01,
    seed: Annotated[int, typer.Option(help="The seed of random graphs.", min=0)] = 0,
    json: Json = False,
) -> None:
    """Measure a network: degree, diameter, spectral gap, mixing time, rounds of Push-Sum."""
    if not 0 < gamma < 1:
        raise ValueError(f"--gamma is a relative error between 0 and 1, got {gamma}")
    from rich.console import Console

    from gadget_svm import spectral, topologies
    from gadget_svm.cli.output import print_table
    from gadget_svm.cli.summary import plain

    with Console(stderr=True).status(f"measuring {name} on {nodes:,} nodes"):  # large graphs take a while
        network = topologies.build(name, nodes, seed=seed, transition=transition)
        facts = plain({"topology": network.name, "gamma": gamma, **spectral.summary(network, gamma)})
    if json:
        typer.echo(dumps(facts, allow_nan=False))
        return
    title = f"{facts['topology']}, {facts['nodes']:,} nodes"
    print_table(("property", "value"), lines(facts), title=title, show_header=False)


def lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the properties in words, unknown ones as a dash."""
    from gadget_svm.report.formatting import count, number

    kind = "directed" if facts["directed"] else "undirected"
    degrees = f"{count(facts['degree_min'])} / {number(facts['degree_mean'], 4)} / {count(facts['degree_max'])}"
    return [
        ("edges", f"{count(facts['edges'])} {kind}"),
        ("transition matrix B", facts["transition"]),
        ("degree min / mean / max", degrees),
        ("diameter", count(facts["diameter"]) + ("" if facts["diameter_exact"] else " at most")),
        ("period of B", count(facts["period"])),
        ("spectral gap 1 - beta", number(facts["spectral_gap"])),
        ("mixing time 1 / (1 - beta)", number(facts["tau_mix"])),
        (f"rounds to {facts['gamma']:g}, diffusion", count(facts["rounds_diffusion"])),
        (f"rounds to {facts['gamma']:g}, randomised", count(facts["rounds_randomised"])),
    ]
