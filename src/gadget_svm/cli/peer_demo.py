"""`gadget peer demo`: real peer processes on this machine learn together, are watched, and then measured.

Owns its options. `peer_run` has the order of the work, `peer_folders` writes what peers need, `peer_processes` starts
and stops them, `peer_results` measures their models.
"""

from dataclasses import dataclass
from pathlib import Path

import typer

from gadget_svm.cli.options import command_for, local_path, option_field


@dataclass(frozen=True)
class PeerDemoRequest:
    """The arguments of a demo as typed."""

    peers: int = option_field("--peers", default=5, min=2, max=64, help="Number of processes.")
    data: str = option_field("--data", default="digits", help="A named data set, or a file.")
    seconds: float = option_field("--seconds", default=30.0, min=5.0, max=1e6, help="How long they learn.")
    out: Path = option_field(
        "--out", default=Path("peers"), check=local_path, help="A folder for certificates, files, models, the summary."
    )
    chaos: bool = option_field("--chaos", default=False, help="Kill one peer with SIGKILL, and start it again.")
    algorithm: str = option_field("--algorithm", default="pdmm", help="pdmm or gadget.")
    lam: float | None = option_field("--lam", min=1e-12, max=1e6, help="Default: the paper's for its data sets.")
    random_state: int = option_field("--seed", default=0, min=0, help="The seed that divides the rows.")
    quiet: bool = option_field("--quiet", "-q", default=False, help="Show no live table.")
    json: bool = option_field("--json", default=False, help="Print one JSON object on stdout, and nothing else.")


@command_for(PeerDemoRequest)
def demo(request: PeerDemoRequest) -> None:
    """Real peer processes on this machine, with new certificates, learn together; then each is measured."""
    from gadget_svm.cli.peer import require_peer_packages

    require_peer_packages()
    from gadget_svm.cli.peer_run import run_demo

    raise typer.Exit(run_demo(request))
