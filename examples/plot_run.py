"""Draw docs/images/run.svg: ten nodes learn handwritten digits; objective and disagreement over iterations.

Run it from the root of the repository: ``python examples/plot_run.py`` (needs ``pip install '.[paper]'``).
"""

import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from gadget_svm import GadgetSVC, load_dataset

LAM, ITERATIONS = 1e-3, 2048
LINES = {"auto": ("PDMM, the default", "#1b6ca8"), "gadget": ("GADGET, the paper's algorithm", "#c8553d")}


def main(path: Path) -> None:
    """Train with both algorithms and write the figure to ``path``."""
    data = load_dataset("digits")
    y = data.y == 0
    shared = {"n_nodes": 10, "topology": "random-regular:4", "lam": LAM, "fit_intercept": False, "random_state": 0}
    best = GadgetSVC(**shared, tol=1e-6).fit(data.X, y).history_[-1]["objective"]

    # The same file in every run; text stays text, which keeps it small.
    mpl.rcParams.update({"svg.hashsalt": "gadget-svm", "svg.fonttype": "none", "font.size": 9})
    figure, (cost, apart) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for algorithm, (name, colour) in LINES.items():
        model = GadgetSVC(**shared, algorithm=algorithm, stopping=None, max_iter=ITERATIONS, record_every=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run ends after a number of iterations, on purpose
            model.fit(data.X, y)
        records = [r for r in model.history_ if r["iteration"] in {int(1.15**k) for k in range(60)}]
        iterations = [r["iteration"] for r in records]
        style = {"color": colour, "label": name, "linewidth": 1.5}
        cost.loglog(iterations, [r["worst_objective"] for r in records], **style)
        apart.loglog(iterations, [max(r["disagreement"], 1e-8) for r in records], **style)
    cost.axhline(best, color="black", linewidth=1, linestyle="--", label="optimum of all rows in one place")
    cost.set_title("objective of the worst node", fontsize=9)
    apart.set_title("disagreement of the nodes", fontsize=9)
    for axes in (cost, apart):
        axes.set_xlabel("iteration")
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*cost.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/run.svg"))
