"""The state of a node in one word, with the reasons. Owns the words; knows only the status as plain values."""

import math
from typing import Any

HEALTHY = ("waiting", "learning", "converged", "certified")
"""States in which a peer needs no operator."""
LOG_TOPICS = ("release", "reachability", "join")
"""Issues that do not make a peer degraded."""


def with_state(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status with its state and the reasons for it; numbers that are not finite become None."""
    state, why = _state(status)
    if status["wait"] is not None:
        why = [*why, _wait(**status["wait"])]
    return {name: _plain(value) for name, value in (status | {"state": state, "why": why}).items()}


def _state(status: dict[str, Any]) -> tuple[str, list[str]]:
    if status["phase"] != "live":
        return status["phase"], []
    serious = [text for topic, text in status["issues"].items() if topic not in LOG_TOPICS]
    if serious:
        return "degraded", serious
    missing = [f"sites of the study that are not here: {', '.join(status['missing'])}"] if status["missing"] else []
    up = [line for line in status["neighbours"] if line["edge"] == "up"]
    others = sum(count for state, count in status["members"].items()) - 1
    if not up and (others or "join" in status["issues"]):
        lost = ", ".join(status["dead"])
        why = [f"no edge to any other site is up{f'; not heard any more: {lost}' if lost else ''}"]
        return "isolated", [*why, *missing, *status["issues"].values()]
    if status["waiting"]:
        return "waiting", [status["waiting"], *missing]
    if status["certified"] is not None and status["at_rest"]:
        return "certified", []
    is_done = "privacy" in status and status["rounds"] >= status["privacy"]["rounds_planned"]
    return "converged" if is_done or status["gap_estimate"] <= status["gap"] else "learning", missing


def _wait(sites: list[str], seconds: float) -> str:
    for_what = f"{', '.join(sites)} to confirm that they have the model" if sites else "another certificate"
    return f"the model is certified; this peer waits at most {seconds:.0f} s more for {for_what}, and then ends"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
