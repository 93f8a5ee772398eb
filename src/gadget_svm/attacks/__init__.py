"""Attacks on the privacy of sites. They measure what exact learning reveals, and test whether a budget holds.

They are for audits and research: active extraction of rows (`extract_rows` from `ExactSites`), a passive neighbour
(`edge_estimate`, `replay`), an audit of the private algorithm (`audit`), and extraction from it (`closeness`). All
attacks run on rows of your own. `benchmarks/attacks.py` runs the attacks on data sets, and decides when an extracted
row counts as recovered.
"""

from gadget_svm.attacks.exact_sites import ExactSites
from gadget_svm.attacks.half_spaces import Extraction, extract_rows
from gadget_svm.attacks.membership_inference import Audit, audit, best_guess, mu_lower_bound
from gadget_svm.attacks.passive_sum import cosine, edge_estimate, replay, start_at_random, true_sums
from gadget_svm.attacks.private_extraction import Closeness, closeness, guess_rows
from gadget_svm.attacks.private_sites import PrivateSites

__all__ = [
    "Audit", "Closeness", "ExactSites", "Extraction", "PrivateSites", "audit", "best_guess", "closeness", "cosine",
    "edge_estimate", "extract_rows", "guess_rows", "mu_lower_bound", "replay", "start_at_random", "true_sums",
]  # fmt: skip
