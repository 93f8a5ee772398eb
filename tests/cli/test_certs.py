"""`gadget certs`: from a new authority to a revoked certificate, and mistakes."""

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from gadget_svm.cli.certs import certs_app
from gadget_svm.cli.errors import CommandGroup


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
    app.add_typer(certs_app, name="certs")
    app.callback()(lambda: None)
    return lambda *words: CliRunner().invoke(app, ["certs", *words], prog_name="gadget", env={"COLUMNS": "120"})


def test_from_init_to_revoke(run, tmp_path):
    assert run("init", "ca").exit_code == 0
    assert "No certificate" in run("list").stdout
    made = run("issue", "a", "--host", "a.example.org", "--host", "10.0.0.7", "--days", "30", "--out", "bundle")
    assert made.exit_code == 0, made.stderr
    assert (tmp_path / "bundle" / "a.key").exists()
    assert run("issue", "b").exit_code == 0
    gone = run("revoke", "a")
    assert "1 certificate of a revoked" in gone.stdout
    assert str(Path("ca") / "revoked.pem") in gone.stdout
    assert "Nothing new" in run("revoke", "a").stdout
    shown = {line.split()[0]: line for line in run("list").stdout.splitlines() if line.strip()}
    assert "revoked" in shown["a"]
    assert "10.0.0.7" in shown["a"]
    assert "valid" in shown["b"]


def test_mistakes_are_one_line_and_exit_2(run):
    run("init", "ca")
    run("issue", "hospital-a")
    for words, text in [
        (("init", "ca"), "--overwrite"),
        (("issue", "hospital-a"), "--overwrite"),
        (("issue", "Ward 3"), "is no peer's name"),
        (("issue", "b", "--host", "b:7400"), "without a port"),
        (("revoke", "hospital-b"), "Did you mean 'hospital-a'?"),
        (("list", "--ca", "elsewhere"), "--ca"),
    ]:
        failed = run(*words)
        assert failed.exit_code == 2, words
        assert text in failed.stderr
        assert failed.stderr.count("\n") == 1


def test_without_the_extra_one_sentence(run, monkeypatch):
    for module in [name for name in sys.modules if name.startswith(("gadget_svm.peers", "gadget_svm.authority"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr("gadget_svm.authority.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    failed = run("init", "ca")
    assert failed.exit_code == 2
    assert failed.stderr.strip() == (
        "error: certificates need cryptography, which is not installed: pip install 'gadget-svm[peer]'"
    )
