"""`gadget certs`: a local certificate authority. `gadget_svm.authority` signs."""

from json import dumps
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gadget_svm.cli.options import Json, local_path, option, require_packages

ABOUT = "Certificates for peers: your own authority, a certificate per site."
certs_app = typer.Typer(help=ABOUT, no_args_is_help=True)
Ca = Annotated[Path, typer.Option("--ca", metavar="DIR", callback=local_path, help="The authority's folder.")]
HOST_HELP = "A DNS name or IP address of it. Repeatable."
OUT_HELP = "Folder for the files, or for folders of several peers. Default: peers in --ca."
Days = Annotated[int, typer.Option(help="Validity in days.", min=1)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def _authority() -> ModuleType:
    """Return the module that does the work, or raise an ImportError that names the extra to install."""
    require_packages("certificates", "cryptography")
    from gadget_svm.authority import certificates

    return certificates


@certs_app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", callback=local_path, help="A new folder; keep it private.")],
    name: Annotated[str, typer.Option(help="The name of the authority.")] = "gadget-svm",
    days: Days = 3650,
    overwrite: Overwrite = False,
) -> None:
    """Make a certificate authority: ca.pem, its key, an empty revocation list."""
    certs = _authority()
    made = certs.init_ca(folder, name=name, days=days, overwrite=overwrite)
    typer.echo(f"The authority is in {folder}, valid until {certs.day(made.cert.not_valid_after_utc.timestamp())}.")
    typer.echo(f"Anybody who has {folder / certs.CA_KEY} can create peers: keep it here; the other files are public.")


@certs_app.command("issue")
def issue(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of peers, such as hospital-a.")],
    host: Annotated[list[str] | None, option("--host", metavar="H", help=HOST_HELP)] = None,
    ca: Ca = Path("ca"),
    out: Annotated[Path | None, option("--out", metavar="DIR", check=local_path, help=OUT_HELP)] = None,
    days: Days = 365,
    overwrite: Overwrite = False,
) -> None:
    """Issue certificates: NAME.pem and NAME.key, with ca.pem and revoked.pem beside them, a folder for each peer."""
    certs = _authority()
    for name in names:
        folder = out / name if out is not None and len(names) > 1 else out
        made = certs.issue(ca, name, host or [], days=days, out=folder, overwrite=overwrite)
        files = ", ".join(path.name for path in (made.cert, made.key, made.ca, made.revoked))
        typer.echo(f"{name}, valid until {certs.day(made.not_after)}: {files} in {made.cert.parent}")
    typer.echo("Copy the four files to their site, the key over a secure channel, and delete the key here.")


@certs_app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The peer's name, such as hospital-a.")],
    ca: Ca = Path("ca"),
    older: Annotated[bool, typer.Option("--older", help="Revoke all but the newest, after a renewal.")] = False,
) -> None:
    """Revoke every certificate of a peer. Other peers refuse it once they have the new revoked.pem."""
    certs = _authority()
    serials = certs.revoke(ca, name, keep_newest=older)
    what = f"{len(serials)} certificate{'s' * (len(serials) != 1)} of {name} revoked" if serials else "Nothing new"
    typer.echo(f"{what}: {', '.join(f'{serial:x}' for serial in serials) or f'{name} has no other valid certificate'}")
    typer.echo(f"Copy {ca / certs.REVOKED} over that of every peer; running peers reload it.")


@certs_app.command("list")
def list_certificates(ca: Ca = Path("ca"), json: Json = False) -> None:
    """List the certificates that were issued, and which are valid."""
    import time

    from gadget_svm.cli.output import print_table

    certs = _authority()
    names = ("name", "state", "until", "serial", "hosts")
    rows = [
        (each.name, each.state(time.time()), certs.day(each.not_after), f"{each.serial:x}", list(each.hosts))
        for each in certs.records(ca)
    ]
    if json:
        typer.echo(dumps([dict(zip(names, row, strict=True)) for row in rows]))
    elif not rows:
        typer.echo(f"No certificate has been issued yet: gadget certs issue NAME --host HOST --ca {ca}")
    else:
        print_table(names, ((*row[:3], row[3][:12], ", ".join(row[4])) for row in rows), plain=True)
