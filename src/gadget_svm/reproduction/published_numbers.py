"""The paper's own numbers, typed in from its tables.

``published_numbers.csv`` holds Tables 2 and 3 of Section 4 and the table of Appendix B of Dutta and Nataraj, "GADGET
SVM": seconds and accuracies in per cent, each with its standard deviation. The time of SVM-SGD on Webspam is printed as
"0 2.52".
"""

import csv
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """Seconds and accuracy as printed, each with its standard deviation."""

    seconds: float | None = None
    seconds_sd: float | None = None
    accuracy: float | None = None
    accuracy_sd: float | None = None


_LINES = csv.reader(Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()[1:])
SETS = ("adult", "ccat", "mnist", "reuters", "usps", "webspam")
"""The data sets of Section 4, in the paper's order."""
PUBLISHED = {(table, name, system): Figure(*map(float, rest)) for table, name, system, *rest in _LINES}
"""The printed figures, by table ("table2", "table3" or "table4"), data set and system."""
SPEEDUP = {"adult": 0.72, "ccat": 0.94, "mnist": 0.84, "reuters": 1.39, "usps": 0.65, "webspam": 1.10, "gisette": 2.86}
"""The speed-up factors of Appendix B: distributed time over centralised time."""
GISETTE_LAMBDA = 1e-4
"""The paper names no lambda for Gisette. This one was chosen here; it is about as large as the others."""
