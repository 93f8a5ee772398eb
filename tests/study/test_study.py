"""The study as a value: its text and digest, hostile texts, and what is said about differences."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gadget_svm.study.study import MAX_TEXT_BYTES, Study, differences, plain_label, problems

STUDY = Study(
    "tumours", 1e-3, 3, (-1.0, 1.0), columns=("age", "size", "dose"), scaling="deviation", scaling_sites=3, min_sites=3
)


def text_with(**values):
    """The study's text with other values, in the canonical form."""
    return json.dumps(json.loads(STUDY.text()) | values, sort_keys=True, separators=(",", ":"))


def test_text_and_digest_are_the_same_for_equal_studies():
    same = replace(STUDY, lam=1e-3, classes=(-1, 1))
    assert same.text() == STUDY.text()
    assert same.digest == STUDY.digest
    assert len(STUDY.digest) == 32
    assert Study.parse(STUDY.text()) == STUDY
    assert replace(STUDY, gap=0.02).digest != STUDY.digest


def test_sizes():
    assert (STUDY.outputs, STUDY.width, STUDY.dimension) == (1, 4, 4)
    three = replace(STUDY, classes=("a", "b", "c"), intercept=False)
    assert (three.outputs, three.width, three.dimension) == (3, 3, 9)


@given(
    st.builds(
        Study, name=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=64),
        lam=st.floats(1e-300, 1e300), n_features=st.integers(1, 10**6),
        classes=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from("abc"), min_size=2,
                         max_size=5, unique=True).map(tuple),
        sites=st.lists(st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), unique=True).map(tuple),
    )
)  # fmt: skip
def test_good_studies_survive_their_text(study):
    if not list(problems(study)):
        assert Study.parse(study.text()) == study


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"lam": 0}, "lam must be a number above 0, got 0"),
        ({"lam": 10**400}, "lam must be a number above 0"),
        ({"lam": "0.1"}, "lam must be a number above 0, got '0.1'"),
        ({"lam": True}, "lam must be a number above 0, got True"),
        ({"gap": -1}, "gap must be"),
        ({"n_features": 2}, "n_features is 2, but 3 columns are named"),
        ({"n_features": 2**31}, "n_features must be a whole number"),
        ({"n_features": 3.0}, "n_features must be a whole number"),
        ({"columns": ["a", "b", "a"]}, "columns must hold each entry once, and 'a' is there twice"),
        ({"columns": [["a"], "b", "c"]}, "columns must not hold"),
        ({"columns": ["a", "b", "x" * 201]}, "columns must not hold"),
        ({"columns": "abc"}, "columns must be a list"),
        ({"classes": [1.0]}, "classes must be a list of 2"),
        ({"classes": [1.0, True]}, "classes must not hold True"),
        ({"classes": [1.0, None]}, "classes must not hold None"),
        ({"classes": list(range(10_001))}, "classes must be a list"),
        ({"intercept": 1}, "intercept must be true or false"),
        ({"algorithm": "pegasos"}, "algorithm must be one of pdmm, gadget"),
        ({"scaling": ["none"]}, "scaling must be one of"),
        ({"scaling_sites": 0}, "needs the number of sites"),
        ({"degree": 10**9}, "degree must be"),
        ({"degree": 3}, "degree must be even, got 3"),
        ({"name": "a\nb"}, "name must be"),
        ({"name": "\ud800"}, "name must be"),
        ({"sites": ["Ward 3"]}, "sites must not hold 'Ward 3'"),
        ({"min_sites": 0}, "min_sites must be"),
        ({"format": 2}, "not of format 1"),
        ({"extra": 1}, "has an unknown one"),
        ({"classes": [-1, 1]}, "canonical"),
    ],
)
def test_a_text_that_no_study_writes_is_refused(values, told):
    with pytest.raises(ValueError, match=told):
        Study.parse(text_with(**values))


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", "[" * 100_000, '{"a":' * 50_000, STUDY.text() + " ", STUDY.text().replace("0.001", "NaN"),
     STUDY.text().replace("0.001", "1e999"), STUDY.text().replace("0.001", "1" * 5000), "x" * (MAX_TEXT_BYTES + 1),
     text_with(columns=json.loads("[" * 500 + "]" * 500))],
)  # fmt: skip
def test_damaged_texts_are_value_errors(text):
    with pytest.raises(ValueError, match="study"):
        Study.parse(text)


def test_large_hostile_lists_are_refused_quickly():
    text = text_with(n_features=400_000, columns=[f"{i:x}" for i in range(399_999)] + ["0"])[:]
    began = time.process_time()
    with pytest.raises(ValueError, match="study"):
        Study.parse(text)
    many = replace(STUDY, columns=tuple(f"{i:0150d}" for i in range(5000)), n_features=5000)
    assert len(differences(STUDY, many, "a", "b")) == 9  # 3 and 5 columns, and how many more
    assert time.process_time() - began < 5.0


def test_no_difference():
    assert differences(STUDY, STUDY, "north", "south") == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"lam": 0.1},
            "north has [learn] lam = 0.001, south has 0.1: use the same [learn] lam in both study.toml files",
        ),
        ({"classes": ("a", "b")}, "north has [data] classes = [-1.0, 1.0], south has ['a', 'b']: "),
        ({"gap": 0.02}, "north has [end] gap = 0.01, south has 0.02: "),
        ({"sites": ("a",)}, "north has [end] sites = [], south has ['a']: "),
        ({"columns": ("age", "dose", "size")}, "column 2 is 'size' at north and 'dose' at south: the order differs: "),
        ({"columns": ("age", "size"), "n_features": 2}, "north has a column 'dose', south does not: "),
        ({"columns": None}, "north has [data] columns = ['age', 'size', 'dose'], south has None: "),
    ],
)
def test_a_difference_is_named_with_both_values_and_the_fix(change, told):
    (sentence,) = differences(STUDY, replace(STUDY, **change), "north", "south")
    assert sentence.startswith(told)
    assert "use the same" in sentence


def test_a_renamed_column_is_named_with_the_similar_one():
    found = differences(STUDY, replace(STUDY, columns=("age", "Size", "dose")), "north", "south")
    assert found[0].startswith("north has a column 'size', south does not (it has 'Size'): ")
    assert found[1].startswith("south has a column 'Size', north does not (it has 'size'): ")


def test_what_another_peer_sends_is_shown_shortened_and_escaped():
    hostile = replace(STUDY, name="\x1b[2J" + "x" * 500)
    (sentence,) = differences(STUDY, hostile, "north", "south")
    assert "\x1b" not in sentence
    assert len(sentence) < 250


def test_labels_are_compared_as_numbers_where_they_are_finite_numbers():
    assert [plain_label(each) for each in (1, "1", "1.0", "yes", "nan", "1e999")] == [
        1.0,
        1.0,
        1.0,
        "yes",
        "nan",
        "1e999",
    ]


PRIVATE = replace(
    STUDY, algorithm="private", scaling="none", scaling_sites=0, epsilon=1.0, delta=1e-6, clip=1.0, rounds=40,
    step_size=2.0,
)  # fmt: skip


def test_a_private_study_survives_its_text():
    assert Study.parse(replace(PRIVATE, epsilon=1).text()) == PRIVATE
    assert differences(PRIVATE, replace(PRIVATE, rounds=50), "a", "b")[0].startswith("a has [privacy] rounds = 40")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epsilon": None}, "epsilon must be set"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"clip": -1.0}, "clip must be a number above 0"),
        ({"step_size": "2"}, "step_size must be a number above 0"),
        ({"delta": 0.5}, "delta must be far below"),
        ({"algorithm": "pdmm"}, "epsilon must be left out"),
        ({"scaling": "max-abs", "scaling_sites": 2}, "statistics of rows are not in the budget"),
    ],
)
def test_a_private_study_has_a_whole_budget_and_others_have_none(change, told):
    values = json.loads(PRIVATE.text()) | change
    with pytest.raises(ValueError, match=told):
        Study.parse(json.dumps(values, sort_keys=True, separators=(",", ":")))
