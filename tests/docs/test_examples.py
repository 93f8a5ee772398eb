"""The Python examples of README and docs run, and print what the page says.

The blocks of a page run in order, in one namespace and an empty folder. If the block after a Python block is
marked as text, it is the expected output. ``<!-- not run: reason -->`` on the line before a block leaves it out.
"""

import contextlib
import io
import runpy
import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from support.pages import NAMES, ROOT, code_blocks


def python_blocks(name):
    return [block for block in code_blocks((ROOT / name).read_text(encoding="utf-8")) if block.kind == "python"]


@pytest.mark.parametrize("name", [name for name in NAMES if python_blocks(name)])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks((ROOT / name).read_text(encoding="utf-8"))
    namespace = {"__name__": "example"}
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.kind != "python" or block.not_run:
            continue
        code = compile("\n" * (block.line - 1) + block.text, str(ROOT / name), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            for kind, action in ((Warning, "error"), (UserWarning, "ignore"), (ConvergenceWarning, "error")):
                warnings.simplefilter(action, kind)
            exec(code, namespace)
        if after is not None and after.kind == "text":
            assert printed.getvalue() == after.text, f"{name}, line {block.line}"


def test_blocks_that_are_not_run_say_why():
    reasons = {block.not_run for name in NAMES for block in python_blocks(name)}
    assert reasons <= {"", "needs a Ray cluster", "needs rows of your own"}


def test_the_figure_of_the_readme_is_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra 'paper'")
    plot_run = runpy.run_path(str(ROOT / "examples" / "plot_run.py"))
    monkeypatch.setitem(plot_run["main"].__globals__, "ITERATIONS", 8)
    plot_run["main"](tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text()
    assert all(name in drawn for name, _ in plot_run["LINES"].values())
