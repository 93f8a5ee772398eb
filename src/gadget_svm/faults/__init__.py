"""What can go wrong between nodes: wrappers of `exchange`, by name, composable; the first is nearest the nodes."""

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from gadget_svm.core.lookup import lookup
from gadget_svm.core.messages import Delivery, Exchange
from gadget_svm.faults.base import Fault, FaultContext
from gadget_svm.faults.links import Bounce, Delay, Loss, Partition
from gadget_svm.faults.nodes import Asynchronous, Churn, Crash, Slow

FAULTS: dict[str, type[Any]] = {
    "loss": Loss,
    "bounce": Bounce,
    "delay": Delay,
    "partition": Partition,
    "crash": Crash,
    "churn": Churn,
    "slow": Slow,
    "async": Asynchronous,
}


def make_faults(spec: "Fault | str | dict[str, Any] | Iterable[Fault | str] | None") -> list[Fault]:
    """Faults from instances, from texts, or from {"loss": 0.1, "crash": {...}}.

    A text is a name with a main value, "loss=0.1", or with several, 'crash={"nodes": [3], "at": 100}'.
    """
    if spec is None:
        return []
    if isinstance(spec, dict):
        return [_named(name, value) for name, value in spec.items()]
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        spec = [spec]
    faults = [_parse(item) if isinstance(item, str) else item for item in spec]
    for fault in faults:
        if not hasattr(fault, "wrap"):
            raise TypeError(f"a fault is a text such as 'loss=0.1' or an instance such as Loss(0.1), not {fault!r}")
        if isinstance(fault, type):
            raise TypeError(f"{fault.__name__} is a class: give an instance of it, such as {fault.__name__}()")
        if not hasattr(fault, "loses"):
            raise TypeError(
                f"the fault {type(fault).__name__} does not say whether messages may be lost: give the class an "
                "attribute 'loses', True if messages can vanish and False if all arrive in the end"
            )
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
    arguments, named = ((), value) if isinstance(value, dict) else (() if value is None else (value,), {})
    try:
        fault: Fault = kind(*arguments, **named)
    except TypeError as error:
        takes = ", ".join(field.name for field in fields(kind) if field.name != "loses")
        raise ValueError(f"fault {name!r} needs other values: it takes {takes}, for example 'loss=0.1'") from error
    return fault


def wrap_all(faults: Iterable[Fault], context: FaultContext) -> Exchange:
    """An exchange in this process that suffers all the faults, mail meeting them in the order given."""
    exchange: Exchange = Delivery
    for fault in reversed(list(faults)):
        exchange = fault.wrap(exchange, context)
    return exchange


__all__ = [
    "FAULTS",
    "Asynchronous",
    "Bounce",
    "Churn",
    "Crash",
    "Delay",
    "Fault",
    "FaultContext",
    "Loss",
    "Partition",
    "Slow",
    "make_faults",
    "wrap_all",
]  # fmt: skip
