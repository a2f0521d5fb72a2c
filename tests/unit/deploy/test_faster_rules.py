"""The rules that labs and tests run on: the shipped ones, only faster."""

from typing import Any

import pytest
import yaml

from labs.prometheus import faster


def quick(expression: str, speed: float = 60, **more: Any) -> dict[str, str]:
    rule = {"alert": "A", "expr": expression, **more}
    made = yaml.safe_load(faster(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}), speed))
    found: dict[str, str] = made["groups"][0]["rules"][0]
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("rate(outbox_processed_total[5m]) == 0", "rate(outbox_processed_total[5000ms]) == 0"),
        ("lag:x:max >= lag:x:max offset 10m", "lag:x:max >= lag:x:max offset 10000ms"),
        # A count is not an age.
        ("projection:outbox_lag_events:max > 100", "projection:outbox_lag_events:max > 100"),
        ("projection:outbox_oldest_age_seconds:max > 300", "projection:outbox_oldest_age_seconds:max > 5"),
        # The sampler waits up to 30 s, at any speed of the rules.
        ("time() - outbox_sample_timestamp_seconds > 120", "time() - outbox_sample_timestamp_seconds > 35"),
        # A share of events within 30 s stays what it is.
        ('rate(b{le="30.0"}[1h]) > 14.4 * 0.01', 'rate(b{le="30.0"}[60000ms]) > 14.4 * 0.01'),
        # The name of a recorded series is not a duration.
        ("projection:outbox_late:ratio_rate5m > 1", "projection:outbox_late:ratio_rate5m > 1"),
    ],
)
def test_durations_and_ages_shrink_and_nothing_else(given: str, expected: str) -> None:
    assert quick(given)["expr"] == expected
