"""study.toml: what all sites agree on, as a file that is the same everywhere. Owns its keys and their defaults.

`Study` checks the values; this module knows where they are in the file.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from gadget_svm.study.study import Algorithm, Scaling, Study, as_study, plain_label
from gadget_svm.study.toml_file import ConfigError, Count, Positive, Section, Values, load_toml, parse_toml
from gadget_svm.study.toml_file import template as toml_template

Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Name(Section):
    """The section [study] of study.toml."""

    name: str = Field(description="the study's name; peers of different studies exchange nothing")


class Data(Section):
    """The section [data] of study.toml."""

    columns: Texts | None = Field(default=None, description="the features' names, in order", examples=[["age", "size"]])
    features: Count | None = Field(
        default=None, description="their number, for files without names, such as svmlight", examples=[123]
    )
    classes: Annotated[tuple[int | float | str, ...], Field(strict=False)] = Field(
        description="all labels of all sites, in order"
    )


class Learn(Section):
    """The section [learn] of study.toml."""

    algorithm: Algorithm = Field(default="pdmm", description='"pdmm", "gadget" or "private"')
    lam: Positive = Field(description="the weight of the regulariser")
    intercept: bool = Field(default=True, description="a constant feature that is learned like the others")
    degree: int = Field(default=4, description="neighbours of a peer, an even number")


class Scale(Section):
    """The section [scaling] of study.toml."""

    kind: Scaling = Field(default="none", description='"none", or by statistics of the sites: "max-abs", "deviation"')
    sites: Annotated[int, Field(ge=0)] = Field(
        default=0, description="sites whose statistics it waits for; 0: as many as must be covered at the end"
    )


class End(Section):
    """The section [end] of study.toml."""

    gap: Positive = Field(
        default=0.01, description="the study ends when the relative gap is certified to be below this"
    )
    sites: Texts = Field(default=(), description="names of the sites that the last certificate must cover")
    min_sites: Annotated[int, Field(ge=0)] = Field(
        default=0, description="or the least number of sites that it must cover, if no names are given"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.sites) == bool(self.min_sites):
            raise ValueError("set either [end] sites or [end] min_sites: which sites the last certificate must cover")
        return self


class Privacy(Section):
    """[privacy], of private studies only"""

    epsilon: Positive | None = Field(default=None, description="the budget of every row", examples=[1.0])
    delta: Positive | None = Field(default=None, description="far below 1 / rows", examples=[1e-6])
    clip: Positive | None = Field(
        default=None, description="longer rows are scaled down to this norm; no function of the rows", examples=[1.0]
    )
    rounds: Count | None = Field(
        default=None, description="noisy slopes that a site releases, as planned", examples=[60]
    )
    step_size: Positive | None = Field(default=None, description="as planned; no effect on privacy", examples=[3.0])


class StudyFile(Section):
    """A study.toml."""

    study: Name
    data: Data
    learn: Learn
    scaling: Scale = Scale()
    privacy: Privacy = Privacy()
    end: End

    def as_study(self) -> Study:
        """Return the study; values that do not fit together are a ValueError."""
        data, learn, end = self.data, self.learn, self.end
        if (data.columns is None) == (data.features is None):
            raise ValueError("set either [data] columns, the features' names, or [data] features, their number")
        covered = len(end.sites) or end.min_sites
        return as_study({
            "name": self.study.name, "algorithm": learn.algorithm, "lam": learn.lam, "intercept": learn.intercept,
            "n_features": data.features if data.columns is None else len(data.columns), "columns": data.columns,
            "classes": tuple(map(plain_label, data.classes)), "scaling": self.scaling.kind,
            "scaling_sites": 0 if self.scaling.kind == "none" else self.scaling.sites or covered,
            "degree": learn.degree, "gap": end.gap, "sites": end.sites, "min_sites": max(end.min_sites, 1),
            **dict(self.privacy),
        })  # fmt: skip


def load_study(path: str | Path) -> Study:
    """Read a study.toml.

    Raises
    ------
    ConfigError
        The file does not exist, or something in it is wrong; the message names the key and the fix.
    """
    return _checked(load_toml(path, "study.toml, as 'gadget study new' writes it", StudyFile), str(path))


def template(values: Values) -> str:
    """Return a commented study.toml with these values, and with defaults for the others."""
    data: dict[str, Any] = dict(values.get("data", {}))
    data["classes"] = None if data.get("classes") is None else [_short(each) for each in data["classes"]]
    text = toml_template(StudyFile, {**values, "data": data})
    _checked(parse_toml(text, "the new file", Path(), StudyFile), "the new file")
    return text


def _checked(file: StudyFile, source: str) -> Study:
    try:
        return file.as_study()
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error


def _short(label: Any) -> Any:
    """Return a label as a person would write it: 1 for 1.0."""
    plain = plain_label(label)
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain
