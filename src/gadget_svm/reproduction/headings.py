"""The tables: their columns, lines, titles and captions, as ``evaluation.toml`` describes them."""

import tomllib
from pathlib import Path

from gadget_svm.reproduction.tables import Column, Row, Table, accuracy, number, text, whole

AS_PRINTED, PERSISTENT = "gadget (as printed)", "gadget (persistent mass)"
READINGS = (AS_PRINTED, PERSISTENT)
"""The two readings of step (g) of Algorithm 2, as the tables name them."""
TEXTS = tomllib.loads(Path(__file__).with_name("evaluation.toml").read_text(encoding="utf-8"))


def verdicts(heading: str, key: str) -> Column:
    """Make a column of comparisons: with as many iterations, and with as many examples (``key``_equal)."""

    def show(row: Row) -> str:
        return "" if row[key] is None else ", ".join("yes" if row[each] else "no" for each in (key, f"{key}_equal"))

    return Column(heading, show, is_text=True)


KINDS = {"text": text, "whole": whole, "number": number, "accuracy": accuracy, "verdicts": verdicts}
TABLES = {
    part: Table(facts["title"], facts["caption"], tuple(KINDS[kind](*names) for *names, kind in facts["columns"]))
    for part, facts in TEXTS.items()
    if "columns" in facts
}
