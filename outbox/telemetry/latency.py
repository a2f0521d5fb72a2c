"""A histogram that takes all ages of a batch at once; prometheus_client's own takes them one by one."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

# 30 s is the objective of the burn-rate alerts, so it must be a bound.
BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


class AgeHistogram:
    """Sorts the ages and cuts them at the bounds: 0.06 us per age for 500 ages; `observe` takes 1.9 us."""

    def __init__(self, name: str, text: str, projection: str, bounds: Sequence[float] = BOUNDS) -> None:
        self._name = name
        self._text = text
        self._projection = projection
        self.bounds = tuple(bounds)
        self._at_most = [0] * (len(self.bounds) + 1)  # cumulative, as the exposition wants it; last = all
        self._sum = 0.0
        self._lock = Lock()

    def observe_all(self, ages: Sequence[float]) -> None:
        if not ages:
            return
        ordered = sorted(ages)
        if ordered[0] < 0:  # a producer's clock is ahead of the database's; a sum must never decrease
            ordered = sorted(max(age, 0.0) for age in ages)
        added = [bisect_right(ordered, bound) for bound in self.bounds]
        added.append(len(ordered))
        total = sum(ordered)
        with self._lock:
            self._at_most = [old + new for old, new in zip(self._at_most, added, strict=True)]
            self._sum += total

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._text, labels=("projection",))]

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            counts, total = self._at_most, self._sum
        bounds = [*map(floatToGoString, self.bounds), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text, labels=("projection",))
        buckets = [(bound, float(count)) for bound, count in zip(bounds, counts, strict=True)]
        family.add_metric([self._projection], buckets=buckets, sum_value=total)
        return [family]
