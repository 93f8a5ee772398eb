"""What the user asked of `gadget train`, and what it means. Refuses what makes no sense; touches no file, no screen."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gadget_svm.cli.option_names import ENGINE_OPTIONS, naming
from gadget_svm.core.lookup import lookup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gadget_svm.algorithms import Algorithm
    from gadget_svm.data.uris import Location
    from gadget_svm.estimator import GadgetSVC

SETTINGS = {
    "gossip": "gossip",
    "rounds": "gossip_rounds",
    "local_steps": "local_steps",
    "batch_size": "batch_size",
    "average": "average",
    "project": "project",
}
"""Options that belong to the algorithm, and what it calls them."""
DEFAULT_LAM = 1e-4
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
MOST_SHARDS = 100_000
RESUME: dict[str, Any] = {"auto": "auto", "true": True, "false": False}
WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Order:
    """The options of one training, as given: None where the user said nothing."""

    data: str  # a named data set or a file; or what the shards are called together
    test: "Location | None" = None
    positive: str | None = None
    label: str | None = None
    format: str | None = None
    data_dir: Path | None = None
    partition: str = "even"
    scale: str = "none"
    nodes: int | None = None
    topology: str = "random-regular"
    lam: float | None = None
    C: float | None = None
    multi_class: str = "ovr"
    algorithm: str = "auto"
    gossip: str | None = None
    rounds: str | None = None
    local_steps: int | None = None
    batch_size: int | None = None
    average: bool | None = None
    project: bool | None = None
    intercept: bool | None = None
    settings: list[str] | None = None
    seed: int = 0
    jobs: int | None = None
    engine: str = "local"
    engine_option: list[str] | None = None
    address: str | None = None
    actors: int | None = None
    checkpoint_dir: str | None = None
    resume: str | None = None
    stopping: str | None = None
    tol: float | None = None
    max_iter: int = 10_000
    max_seconds: float | None = None
    drop: float | None = None
    fault: list[str] | None = None
    json: bool = False
    out: "Location | None" = None
    report: "Location | None" = None
    record_every: int | None = None
    quiet: bool = False
    require_all_rows: bool = False
    shards: tuple[str, ...] = ()  # files or URIs, one a node

    @classmethod
    def of(cls, data: list[str], test: str | None = None, **options: Any) -> "Order":
        """As typed: one name or file is data to be dealt out; several are shards, as is one URI that actors read."""
        from gadget_svm.data.uris import parse_location, scheme_of

        data = [place for given in data for place in expanded(given)]
        places = {"test": test, "out": options.get("out"), "report": options.get("report")}
        options |= {name: None if given is None else parse_location(given) for name, given in places.items()}
        if len(data) == 1 and (not scheme_of(data[0]) or options.get("engine") != "ray"):
            return cls(data[0], **options)
        return cls(f"{len(data):,} shard{'s' * (len(data) > 1)}", shards=tuple(data), **options)

    @property
    def typed_faults(self) -> list[tuple[str, str]]:
        """All faults: the option as typed, and what it means. --drop P is loss=P, nearest the nodes."""
        dropped = [] if self.drop is None else [(f"--drop {self.drop:g}", f"loss={self.drop}")]
        return dropped + [(f"--fault {text}", text) for text in self.fault or []]

    @property
    def fault_texts(self) -> list[str]:
        """All faults as the estimator takes them."""
        return [text for _, text in self.typed_faults]


def expanded(place: str) -> list[str]:
    """The names that part-{0..9}.svm stands for, as in bash: not every shell expands it, and a job has none."""
    found = RANGE.search(place)
    if found is None:
        return [place]
    first, last = found[1], found[2]
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    step = 1 if int(first) <= int(last) else -1
    numbers = range(int(first), int(last) + step, step)
    if len(numbers) > MOST_SHARDS:
        raise ValueError(f"{place} stands for {len(numbers):,} names: no more than {MOST_SHARDS:,} are possible")
    width = max(len(first), len(last)) if padded else 0
    names = (place[: found.start()] + str(number).zfill(width) + place[found.end() :] for number in numbers)
    return [each for name in names for each in expanded(name)]


class HasLam(Protocol):
    """Data, as far as it may have a lam of its own."""

    @property
    def lam(self) -> float | None:
        """The paper's, where it has one."""


def make_model(order: Order, data: HasLam) -> "GadgetSVC":
    """The estimator the order describes, for this data."""
    from gadget_svm.estimator import GadgetSVC

    return GadgetSVC(
        n_nodes=order.nodes,
        topology=order.topology,
        lam=lam_for(order, data),
        C=order.C,
        multi_class=order.multi_class,
        algorithm=make_algorithm(order),
        fit_intercept=wants_intercept(order),
        tol=order.tol,
        stopping=stopping_for(order),
        max_iter=order.max_iter,
        max_seconds=order.max_seconds,
        record_every=order.record_every,
        engine=order.engine,
        engine_options=engine_options(order),
        faults=order.fault_texts or None,
        n_jobs=order.jobs,
        random_state=order.seed,
    )


def make_algorithm(order: Order) -> "Algorithm":
    """The named algorithm with the settings given beside it."""
    from gadget_svm import algorithms

    algorithm = algorithms.resolve(order.algorithm)
    wanted = wanted_settings(order)
    if isinstance(algorithm, algorithms.Auto) and wanted:
        with naming(" ".join(typed for typed, _ in wanted.values())):
            algorithm = algorithm.with_settings(wanted)
    known = algorithm.get_params(deep=False)
    for name, (typed, _) in wanted.items():
        with naming(typed):
            lookup(f"setting of the algorithm {order.algorithm!r}", name, known)
    algorithm.set_params(**{name: value for name, (_, value) in wanted.items()})
    return algorithm


def wanted_settings(order: Order) -> dict[str, tuple[str, Any]]:
    """The settings of the algorithm by name: as typed, and the value."""
    found = {}
    for option, name in SETTINGS.items():
        if (value := getattr(order, option)) is not None:
            found[name] = (f"--{option.replace('_', '-')} {value}", _value(value))
    for text in order.settings or []:
        name, value = _setting(text)
        found[name] = (f"--set {text}", value)
    return found


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text}: write NAME=VALUE, for example --set gamma=0.001")
    return name.strip().replace("-", "_"), _value(value.strip())


def _value(text: Any) -> Any:
    """A number, true, false or none where the text is one; else the text."""
    if not isinstance(text, str) or text.lower() in WORDS:
        return WORDS[text.lower()] if isinstance(text, str) else text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def engine_options(order: Order) -> dict[str, Any] | None:
    """What was said of the engine, by name; what looks like JSON is read as such."""
    found = {}
    for text in order.engine_option or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--engine-option {text}: write NAME=VALUE, for example --engine-option actors=4")
        found[name.strip().replace("-", "_")] = _structure(value.strip())
    own = {name: getattr(order, name) for name in ENGINE_OPTIONS if getattr(order, name) is not None}
    if order.resume is not None:
        with naming(f"--resume {order.resume}"):
            own["resume"] = lookup("choice", order.resume.lower(), RESUME)
    for name in own:
        option = f"--{name.replace('_', '-')}"
        if order.engine != "ray":
            raise ValueError(f"{option} is for a Ray cluster: add --engine ray, or leave it out")
        if name in found:
            raise ValueError(f"{option} and --engine-option {name} mean the same: give one of them")
    return found | own or None


def _structure(text: str) -> Any:
    if not text.startswith("{"):
        return _value(text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f'{text} is not JSON ({error}): write for example resources={{"fast": 1}}') from None


def lam_for(order: Order, data: HasLam) -> float:
    """The one given, else the data set's own, else 1e-4; with C it has no say and stays at 1e-4."""
    if order.lam is not None and order.C is not None:
        raise ValueError("--lam and --C both set the regularisation: give one of them")
    if order.lam is not None:
        return order.lam
    return DEFAULT_LAM if data.lam is None or order.C is not None else data.lam


def wants_intercept(order: Order) -> bool:
    """As told; else not for the paper's data sets, since the paper has no bias."""
    from gadget_svm.data.catalog import ENTRIES

    if order.intercept is not None:
        return order.intercept
    entry = ENTRIES.get(order.data)
    return entry is None or entry.builtin is not None


def stopping_for(order: Order) -> str | None:
    """The rule's name: the one that suits the algorithm unless told."""
    if order.stopping is None:
        return "auto"
    return None if order.stopping.lower() == "none" else order.stopping


def share_out(order: Order, y: "NDArray[Any]") -> "NDArray[Any] | None":
    """The site of every row, or None where the estimator deals them out evenly."""
    from gadget_svm.data.partition import assign_sites

    options = partition_options(order)
    scheme = options.pop("scheme")
    if scheme == "even":
        return None
    count = order.nodes or len(options.get("sizes", [])) or min(10, len(y))
    with naming(f"--partition {order.partition}"):
        return assign_sites(y, count, scheme, seed=order.seed, **options)


def partition_options(order: Order) -> dict[str, Any]:
    """The scheme of --partition, and its parameter."""
    from gadget_svm.data.partition import SCHEMES

    scheme, _, text = order.partition.partition(":")
    lookup("partition scheme", scheme, SCHEMES)
    try:
        if scheme == "sizes":
            return {"scheme": scheme, "sizes": [float(size) for size in text.split(",")]}
        alpha = {"alpha": float(text)} if scheme == "label-skew" and text else {}
        return {"scheme": scheme, **alpha}
    except ValueError as error:
        raise ValueError("write sizes:1,2,3 or label-skew:0.1") from error


def with_nodes(order: Order, sites: int | None) -> Order:
    """The order with as many nodes as there are sites."""
    return order if sites is None else replace(order, nodes=sites)
