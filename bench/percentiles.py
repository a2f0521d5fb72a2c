"""Percentiles of a list, as the reports name them."""

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
