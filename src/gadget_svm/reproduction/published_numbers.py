"""The paper's own numbers, typed in from its tables: accuracy in per cent, time in seconds, standard deviations.

Source: Dutta and Nataraj, "GADGET SVM", Tables 2 and 3 of Section 4 and the table of Appendix B.
"""

from typing import NamedTuple


class Figure(NamedTuple):
    """Seconds and accuracy as printed, each with its standard deviation."""

    seconds: float
    seconds_sd: float
    accuracy: float
    accuracy_sd: float


SETS = ("adult", "ccat", "mnist", "reuters", "usps", "webspam")
"""The data sets of Section 4, in the paper's order."""

TABLE2 = {
    ("adult", "gadget"): Figure(0.08, 0.01, 77.04, 0.03),
    ("adult", "pegasos"): Figure(0.02, 0.002, 68.79, 0.18),
    ("ccat", "gadget"): Figure(0.70, 0.101, 84.99, 0.016),
    ("ccat", "pegasos"): Figure(0.29, 0.031, 76.21, 0.04),
    ("mnist", "gadget"): Figure(0.11, 0.037, 88.57, 0.04),
    ("mnist", "pegasos"): Figure(0.03, 0.004, 89.81, 0.01),
    ("reuters", "gadget"): Figure(0.16, 0.01, 94.04, 0.07),
    ("reuters", "pegasos"): Figure(0.04, 0.006, 95.59, 0.01),
    ("usps", "gadget"): Figure(0.07, 0.013, 92.12, 0.03),
    ("usps", "pegasos"): Figure(0.023, 0.003, 92.33, 0.02),
    ("webspam", "gadget"): Figure(0.10, 0.02, 77.49, 0.05),
    ("webspam", "pegasos"): Figure(0.03, 0.003, 80.04, 0.04),
}

TABLE3 = {
    ("adult", "gadget"): Figure(0.085, 0.01, 77.04, 0.03),
    ("adult", "svm-perf"): Figure(0.059, 0.01, 76.38, 1.00),
    ("adult", "svm-sgd"): Figure(0.025, 0.006, 84.14, 0.88),
    ("ccat", "gadget"): Figure(0.70, 0.10, 84.99, 0.02),
    ("ccat", "svm-perf"): Figure(4.33, 0.49, 53.41, 1.062),
    ("ccat", "svm-sgd"): Figure(6.64, 0.16, 92.82, 0.52),
    ("mnist", "gadget"): Figure(0.11, 0.04, 88.57, 0.04),
    ("mnist", "svm-perf"): Figure(0.81, 1.81, 89.91, 0.83),
    ("mnist", "svm-sgd"): Figure(0.83, 0.03, 82.52, 2.69),
    ("reuters", "gadget"): Figure(0.16, 0.01, 94.04, 0.07),
    ("reuters", "svm-perf"): Figure(0.05, 0.01, 94.57, 1.22),
    ("reuters", "svm-sgd"): Figure(0.04, 0.00, 94.35, 0.88),
    ("usps", "gadget"): Figure(0.072, 0.013, 92.12, 0.03),
    ("usps", "svm-perf"): Figure(18.64, 22.89, 91.62, 1.90),
    ("usps", "svm-sgd"): Figure(0.15, 0.008, 91.63, 1.96),
    ("webspam", "gadget"): Figure(0.10, 0.02, 77.49, 0.05),
    ("webspam", "svm-perf"): Figure(1.38, 0.11, 60.72, 0.42),
    ("webspam", "svm-sgd"): Figure(2.52, 0.00, 89.94, 2.19),  # printed as "0 2.52"
}

TABLE4 = {
    ("adult", "gadget"): Figure(19.63, 2.00, 77.04, 0.03),
    ("adult", "pegasos"): Figure(27.34, 0.002, 68.79, 0.18),
    ("ccat", "gadget"): Figure(72.35, 8.96, 84.99, 0.016),
    ("ccat", "pegasos"): Figure(76.54, 0.031, 76.21, 0.04),
    ("mnist", "gadget"): Figure(23.61, 8.1, 88.57, 0.04),
    ("mnist", "pegasos"): Figure(28.22, 5.2, 89.81, 0.01),
    ("reuters", "gadget"): Figure(15.45, 0.81, 94.04, 0.07),
    ("reuters", "pegasos"): Figure(11.07, 6.04, 95.59, 0.01),
    ("usps", "gadget"): Figure(4.26, 0.914, 92.12, 0.03),
    ("usps", "pegasos"): Figure(6.59, 2.05, 92.33, 0.02),
    ("webspam", "gadget"): Figure(23.21, 4.21, 77.49, 0.05),
    ("webspam", "pegasos"): Figure(21.09, 2.2, 80.03, 0.0),
    ("gisette", "gadget"): Figure(204.68, 135.84, 55.43, 0.04),
    ("gisette", "pegasos"): Figure(71.50, 32.04, 50.0, 0.04),
}

SPEEDUP = {"adult": 0.72, "ccat": 0.94, "mnist": 0.84, "reuters": 1.39, "usps": 0.65, "webspam": 1.10, "gisette": 2.86}

GISETTE_LAMBDA = 1e-4
"""Not in the paper, which names none for Gisette: chosen here, of the size of the others."""
