"""Ranges of file names: part-{0..9}.svm means ten files."""

import re

RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
MAX_SHARDS = 100_000


def expand_ranges(typed: list[str]) -> list[str]:
    """Expand part-{0..9}.svm as bash does: other shells may not, and a cluster job runs without a shell."""
    return [name for each in typed for name in _expanded(each)]


def _expanded(name: str) -> list[str]:
    found = RANGE.search(name)
    if found is None:
        return [name]
    first, last = found[1], found[2]
    step = 1 if int(first) <= int(last) else -1
    numbers = range(int(first), int(last) + step, step)
    if len(numbers) > MAX_SHARDS:
        raise ValueError(f"{name} means {len(numbers):,} names: no more than {MAX_SHARDS:,} are possible")
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return expand_ranges([f"{name[: found.start()]}{number:0{width}}{name[found.end() :]}" for number in numbers])
