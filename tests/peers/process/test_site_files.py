"""A site's files: which labels are missing, and how columns are compared with the study."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pydantic")

from gadget_svm.peers.process.site_files import read_site
from gadget_svm.peers.training.site import SiteError
from gadget_svm.study.study import Study

STUDY = Study("test", 0.01, 1, ("yes", "no"), columns=("age",))


def table(folder, columns, *rows, n=30):
    """A file of thirty rows: these, in turn."""
    path = folder / "rows.csv"
    path.write_text("\n".join([columns, *(rows[i % len(rows)] for i in range(n))]) + "\n")
    return path


def labelled(folder, *labels):
    return table(folder, "age,label", *(f"{i / 7},{label}" for i, label in enumerate(labels)))


@pytest.mark.parametrize("missing", ["nan", "NaN", "-nan"])
def test_a_missing_label_is_an_error_that_names_the_row(tmp_path, missing):
    """As pandas writes it."""
    with pytest.raises(SiteError, match=rf"rows\.csv, row 3: the label is missing \('{missing}'\); fill it in or drop"):
        read_site(labelled(tmp_path, "yes", "no", missing), STUDY)


def test_an_empty_label_of_a_format_that_has_such_is_missing(tmp_path):
    np.savez(tmp_path / "rows.npz", X=np.arange(30.0)[:, None], y=np.array(["yes", "no", " "] * 10))
    with pytest.raises(SiteError, match=r"rows\.npz, row 3: the label is missing \(' '\); fill it in or drop the row$"):
        read_site(tmp_path / "rows.npz", replace(STUDY, columns=None))


def test_a_missing_label_of_the_test_rows_is_told_of_that_file(tmp_path):
    (tmp_path / "test").mkdir()
    test = labelled(tmp_path / "test", "yes", "nan")
    with pytest.raises(SiteError, match=r"test/rows\.csv, row 2: the label is missing"):
        read_site(labelled(tmp_path, "yes", "no"), STUDY, test=test)


def test_a_text_that_is_named_as_a_class_is_one(tmp_path):
    site = read_site(labelled(tmp_path, "nan", "yes"), replace(STUDY, classes=("nan", "yes")))
    assert site.label.tolist()[:2] == [0, 1]


def test_labels_are_numbered_as_the_study_says_and_numbers_are_compared_as_numbers(tmp_path):
    site = read_site(labelled(tmp_path, "1", "2.50", "many"), replace(STUDY, classes=(2.5, 1.0, "many")))
    assert site.classes == (2.5, 1.0, "many")
    assert site.label.tolist()[:3] == [1, 0, 2]


def test_an_unknown_label_is_named(tmp_path):
    with pytest.raises(SiteError, match="has the label 'maybe', which is not among the"):
        read_site(labelled(tmp_path, "yes", "maybe"), STUDY)


def test_a_site_may_lack_a_class(tmp_path):
    assert set(read_site(labelled(tmp_path, "no"), STUDY).label.tolist()) == {1}


def test_too_few_rows(tmp_path):
    with pytest.raises(SiteError, match="has 19 rows"):
        read_site(table(tmp_path, "age,label", "1,yes", n=19), STUDY)


def test_columns_are_taken_by_name_in_the_order_of_the_study(tmp_path):
    study = replace(STUDY, columns=("age", "size", "dose"), n_features=3)
    path = table(tmp_path, "dose,label,age,size", "3,yes,1,2", "30,no,10,20")
    site = read_site(path, study, label="label", test=path)
    assert site.columns == ("age", "size", "dose")
    assert site.X[:2].toarray().tolist() == site.X_test[:2].toarray().tolist() == [[1, 2, 3], [10, 20, 30]]


def test_columns_that_differ_are_named_one_by_one(tmp_path):
    study = replace(STUDY, columns=("age", "size", "dose"), n_features=3)
    with pytest.raises(SiteError) as failed:
        read_site(table(tmp_path, "age,Size,weight,label", "1,2,3,yes"), study)
    said = str(failed.value)
    assert f"{tmp_path / 'rows.csv'} has a column 'Size', the study does not (it has 'size')" in said
    assert "the study has a column 'dose'" in said
    assert "rename, add or remove columns of the file, or agree on another study.toml" in said


@pytest.mark.parametrize("cell", ["Anna", ""])
def test_a_column_of_text_that_the_study_does_not_have_is_named(tmp_path, cell):
    with pytest.raises(SiteError, match=r"rows\.csv: the study has no column 'patient': leave it out, or, if it is"):
        read_site(table(tmp_path, "patient,age,label", f"{cell},1,yes"), STUDY)


def test_a_missing_value_of_a_column_of_the_study_is_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"line 2, column 'age': the value is missing \(''\): fill it in or drop the row"
    ):
        read_site(table(tmp_path, "age,label", ",yes", "1,no"), STUDY)


def test_a_column_that_is_there_twice_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.csv has two columns 'age', .*: rename or remove"):
        read_site(table(tmp_path, "age,age,label", "1,2,yes"), STUDY)


def test_a_file_without_names_does_not_fit_a_study_with_names(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 1:2\n" * 15)
    with pytest.raises(SiteError, match=r"has no column names, and the study has: .*--features 1 for all sites"):
        read_site(tmp_path / "rows.svm", STUDY)


@pytest.mark.parametrize("label", [None, "outcome"])
def test_a_csv_file_without_a_header_is_told_at_once(tmp_path, label):
    with pytest.raises(SiteError, match=r"rows\.csv has no column names, .* names \(age, and the label\) in the first"):
        read_site(table(tmp_path, "yes,1", "no,2"), STUDY, label=label)


def test_svmlight_files_get_the_width_of_the_study(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:1\n-1 2:2\n" * 15)
    study = Study("test", 0.01, 5, (-1.0, 1.0))
    assert read_site(tmp_path / "rows.svm", study).X.shape == (30, 5)
    with pytest.raises(ValueError, match="has 2 features, 1 were expected"):
        read_site(tmp_path / "rows.svm", replace(study, n_features=1))
