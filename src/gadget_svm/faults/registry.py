"""The faults by name; `make_faults` makes fault objects from what the user gives, and `wrap_all` puts them in order.

To add a fault, add a class to `links`, `nodes` or `poison` and a line to FAULTS."""

import json
from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

from gadget_svm.core.lookup import lookup, require_instance
from gadget_svm.core.messages import Delivery, Exchange
from gadget_svm.core.registry import Registry
from gadget_svm.faults.base import Fault, FaultContext
from gadget_svm.faults.links import Bounce, Delay, Loss, Partition
from gadget_svm.faults.nodes import Asynchronous, Churn, Crash, Flapping, Slow
from gadget_svm.faults.poison import Constant, FalseCounts, LittleIsEnough, SignFlip, Zeros

FAULTS: Registry[Callable[..., Fault]] = Registry(
    "gadget_svm.faults",
    {
        "loss": Loss, "bounce": Bounce, "delay": Delay, "partition": Partition, "crash": Crash, "churn": Churn,
        "flapping": Flapping, "slow": Slow, "async": Asynchronous, "sign-flip": SignFlip, "constant": Constant,
        "zeros": Zeros, "little-is-enough": LittleIsEnough, "false-counts": FalseCounts,
    },
)  # fmt: skip


def make_faults(spec: "Fault | str | dict[str, Any] | Iterable[Fault | str] | None") -> list[Fault]:
    """Return the faults that ``spec`` names or holds.

    Parameters
    ----------
    spec : None, str, Fault, list of these, or dict
        A text is a name with a main value, "loss=0.1", or with several, 'crash={"nodes": [3], "at": 100}'. A dict has
        the names as keys: {"loss": 0.1, "crash": {"nodes": [3]}}. A fault of your own derives from `Fault`.

    Raises
    ------
    ValueError
        If a name is unknown or a value does not fit.
    TypeError
        If an item is neither a text nor a fault.

    Examples
    --------
    >>> make_faults(["loss=0.1", 'crash={"nodes": [3], "at": 100}'])
    [Loss(p=0.1), Crash(nodes=[3], at=100, back=None)]
    """
    if spec is None:
        return []
    if isinstance(spec, dict):
        return [_named(name, value) for name, value in spec.items()]
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        spec = [spec]
    faults = [_parse(item) if isinstance(item, str) else item for item in spec]
    for fault in faults:
        expected = "a fault is a text such as 'loss=0.1', or an instance of a class that derives from gadget_svm.faults"
        require_instance(fault, Fault, f"{expected}.Fault and declares 'loses'", "Loss(0.1)")
    return faults


def _parse(text: str) -> Fault:
    name, _, value = text.partition("=")
    try:
        number = json.loads(value) if value.strip() else None
    except json.JSONDecodeError:
        raise ValueError(
            f"the value of fault {text!r} is not a number: write 'loss=0.1', or several values as "
            """'crash={"nodes": [3], "at": 100}'; several faults are a list of texts"""
        ) from None
    return _named(name.strip(), number)


def _named(name: str, value: Any) -> Fault:
    kind = lookup("fault", name, FAULTS)
    positional, named = ([], value) if isinstance(value, dict) else ([] if value is None else [value], {})
    try:
        signature(kind).bind(*positional, **named)
    except TypeError as error:
        takes = ", ".join(signature(kind).parameters)
        values = ", ".join(f'"{each}": ...' for each in signature(kind).parameters)
        raise ValueError(f"fault {name!r} needs other values: it takes {takes}; write '{name}={{{values}}}'") from error
    return kind(*positional, **named)


def wrap_all(faults: Iterable[Fault], context: FaultContext) -> Exchange:
    """Return an exchange in this process with all the faults, applied to messages in the order given."""
    exchange: Exchange = Delivery
    for fault in reversed(list(faults)):
        exchange = fault.wrap(exchange, context)
    return exchange
