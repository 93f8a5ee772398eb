"""A site's rows as values: their fingerprint, and the checks of labels."""

from dataclasses import replace

import numpy as np
import pytest

from gadget_svm.peers.training.site import MIN_ROWS, SiteError, check_labels, check_row_count, numbered_labels
from support.training_kit import site


def test_a_fingerprint_is_of_rows_labels_and_classes():
    one = site("a")
    other = one.X.copy()
    other.data[5] += 1e-12
    different = [replace(one, X=other), replace(one, label=1 - one.label), replace(one, classes=("x", "y")), site("b")]
    prints = {each.fingerprint() for each in [one, site("a"), *different]}
    assert len(prints) == 1 + len(different)
    assert replace(one, X_test=other).fingerprint() == one.fingerprint()


def test_labels_get_the_places_of_their_classes():
    y = np.array(["1", "2.50", "many", "1"])
    assert numbered_labels("rows.csv", y, [2.5, 1, "many"]).tolist() == [1, 0, 2, 1]
    with pytest.raises(SiteError, match=r"rows.csv has the label 'many', which is not among the classes \[2.5, 1\]"):
        numbered_labels("rows.csv", y, [2.5, 1])


def test_a_missing_label_is_named_by_its_row():
    y = np.array(["yes", "no", "nan"])
    with pytest.raises(SiteError, match=r"rows.csv, row 3: the label is missing \('nan'\); .* if it is a class$"):
        check_labels("rows.csv", y, ["yes", "no"])
    check_labels("rows.csv", y, ["yes", "nan"])
    check_labels("rows.csv", np.array([1.0, 2.0]), [1.0, 2.0])


def test_few_rows_are_refused():
    check_row_count("rows.csv", MIN_ROWS)
    with pytest.raises(SiteError, match="Join forces with another site, or add rows"):
        check_row_count("rows.csv", MIN_ROWS - 1)
