"""study.toml: what it may hold, and what is said about what it may not."""

import pytest

pytest.importorskip("pydantic")

from gadget_svm.study.study import KEYS, Study
from gadget_svm.study.study_file import StudyFile, load_study, template
from gadget_svm.study.toml_file import ConfigError, sections_of

GIVEN = {
    "study": {"name": "tumours"}, "learn": {"lam": 1e-3}, "end": {"min_sites": 3},
    "data": {"columns": ["age", 'odd "name"\\ñ'], "classes": ["1", "-1"]},
}  # fmt: skip


def written(folder, text):
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def with_values(section, **values):
    return GIVEN | {section: {**GIVEN.get(section, {}), **values}}


def test_the_template_loads_with_the_values_it_was_given(tmp_path):
    study = load_study(written(tmp_path, template(GIVEN)))
    assert study == Study("tumours", 1e-3, 2, (1.0, -1.0), columns=("age", 'odd "name"\\ñ'), min_sites=3)


def test_all_values(tmp_path):
    values = {
        "study": {"name": "x"}, "data": {"features": 123, "classes": ["yes", "no", 2.5]},
        "learn": {"lam": 1, "algorithm": "gadget", "intercept": False, "degree": 6},
        "scaling": {"kind": "max-abs", "sites": 2}, "end": {"gap": 0.05, "sites": ["north", "south", "east"]},
    }  # fmt: skip
    assert load_study(written(tmp_path, template(values))) == Study(
        "x", 1.0, 123, ("yes", "no", 2.5), "gadget", False, None, "max-abs", 2, 6, 0.05, ("north", "south", "east")
    )


def test_scaling_waits_for_the_sites_of_the_end_by_default(tmp_path):
    text = template(with_values("scaling", kind="deviation"))
    assert load_study(written(tmp_path, text)).scaling_sites == 3


def test_every_key_is_in_the_template_with_a_comment_and_sets_a_field():
    text = template(GIVEN)
    keys = [f"[{name}] {key}" for name, section in sections_of(StudyFile).items() for key in section.model_fields]
    assert set(keys) == set(KEYS.values())
    for name, section in sections_of(StudyFile).items():
        for key, about in section.model_fields.items():
            assert about.description
            assert f"\n{key} = " in text or f"\n# {key} = " in text, f"[{name}] {key}"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (with_values("learn", lam=0), r"\[learn\] lam: must be greater than 0"),
        (with_values("learn", degree=3), r"\[learn\] degree: must be even, got 3"),
        (with_values("learn", algorithm="pegasos"), "must be 'pdmm', 'gadget' or 'private'"),
        (with_values("learn", lamb=1), "Did you mean 'lam'"),
        (with_values("data", columns=None), r"set either \[data\] columns, the features' names, or"),
        (with_values("data", features=2), r"set either \[data\] columns, the features' names, or"),
        (with_values("data", columns=["a", "a"]), r"\[data\] columns: must hold each entry once"),
        (with_values("data", columns=["x" * 150 + str(i) for i in range(20_000)]), "set .data. features to 20000"),
        (with_values("data", classes=["1"]), r"\[data\] classes: must be a list of 2"),
        (with_values("data", classes=None), r"\[data\] classes is missing"),
        (with_values("data", classes=["1", 1.0]), r"\[data\] classes: must hold each entry once"),
        (with_values("end", min_sites=None), r"set either \[end\] sites or \[end\] min_sites"),
        (with_values("end", sites=["a"]), r"set either \[end\] sites or \[end\] min_sites"),
        (with_values("end", sites=["Ward 3"], min_sites=None), r"\[end\] sites: must not hold 'Ward 3'"),
        (with_values("study", name="a\nb"), r"\[study\] name: must be 1 to 64 printable"),
        (with_values("study", name=None), r"\[study\] name is missing"),
    ],
)
def test_each_fault_names_the_key_and_what_is_allowed(values, told):
    with pytest.raises(ConfigError, match=told):
        template(values)


def test_errors_name_the_file(tmp_path):
    path = written(tmp_path, template(GIVEN).replace("lam =", "lambda ="))
    with pytest.raises(ConfigError, match=r"study\.toml: .*\[learn\] unknown key 'lambda'\. Did you mean 'lam'\?"):
        load_study(path)
    with pytest.raises(ConfigError, match="gadget study new"):
        load_study(tmp_path / "none.toml")
