"""Labels of a site's file: which are numbers, which are words, and which are none."""

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")

from gadget_svm.peers.charter import Charter
from gadget_svm.peers.site import SiteError, load_site


def labelled(folder, *labels):
    """A file of thirty rows that have these labels, in turn."""
    lines = [f"{i / 7},{labels[i % len(labels)]}" for i in range(30)]
    path = folder / "rows.csv"
    path.write_text("\n".join(["age,label", *lines]) + "\n")
    return path


@pytest.mark.parametrize("missing", ["nan", "NaN", "-nan"])
@pytest.mark.parametrize("classes", [None, ["yes", "no"]])
def test_a_missing_label_is_an_error_that_names_the_row(tmp_path, missing, classes):
    """As pandas writes it, and as no two of them are the same."""
    path = labelled(tmp_path, "yes", "no", missing)
    with pytest.raises(SiteError) as error:
        load_site(path, label="label", classes=classes)
    assert str(error.value) == (
        f"{path}, row 3: the label is missing ('{missing}'); fill it in or drop the row, or name {missing} in [data] "
        "classes if it is a class"
    )


def test_an_empty_label_of_a_format_that_has_such_is_missing(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.arange(30.0)[:, None], y=np.array(["yes", "no", " "] * 10))
    with pytest.raises(SiteError, match=r"rows\.npz, row 3: the label is missing \(' '\); fill it in or drop the row$"):
        load_site(tmp_path / "rows.npz")


def test_a_missing_label_of_the_test_rows_is_told_of_that_file(tmp_path):
    (tmp_path / "test").mkdir()
    test = labelled(tmp_path / "test", "yes", "nan")
    with pytest.raises(SiteError, match=r"test/rows\.csv, row 2: the label is missing"):
        load_site(labelled(tmp_path, "yes", "no"), test=test, label="label")


@pytest.mark.parametrize("word", ["inf", "Infinity", "-inf", "1e999"])
def test_only_finite_numbers_are_numbers(tmp_path, word):
    """Others are words, and go on the wire as such."""
    site = load_site(labelled(tmp_path, "fin", word), label="label")
    assert set(site.classes) == {"fin", word}
    terms = Charter("test", "pdmm", 0.01, 1, "none", site.classes, True, "none")
    assert Charter.parse(terms.text()) == terms
    assert site.label.tolist()[:2] == [site.classes.index("fin"), site.classes.index(word)]


def test_a_word_that_is_named_as_a_class_is_one(tmp_path):
    """nan is short for something at some site."""
    site = load_site(labelled(tmp_path, "nan", "yes"), label="label", classes=["nan", "yes"])
    assert site.classes == ("nan", "yes")
    assert site.label.tolist()[:2] == [0, 1]


def test_numbers_are_compared_as_numbers(tmp_path):
    site = load_site(labelled(tmp_path, "1", "2.50", "many"), label="label", classes=[2.5, 1, "many"])
    assert site.classes == (2.5, 1.0, "many")
    assert site.label.tolist()[:3] == [1, 0, 2]
