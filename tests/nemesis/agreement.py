"""Asks the second judge too, and compares: `python -m tests.nemesis.agreement FOLDER | ARCHIVE | history.jsonl`."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.nemesis import history, kafka_judge, second_judge, verdict
from tests.nemesis.evidence import Evidence
from tests.nemesis.kafka_judge import KafkaEvidence
from tests.nemesis.verdict import NemesisVerdict

# What the first judge finds by other means than a history: a command, samples of the table, names of indexes.
BESIDE_IT = frozenset(
    {"I3 Verified", "I11 It drains", "I17 Nobody else's index", "I11 Every worker is well", "I1 No gap"}
)
# Of Kafka the first judge has no steps.
NOT_OF_KAFKA = frozenset({"I6", "I7", "I8", "I9", "I10"})


@dataclass(frozen=True)
class SecondOpinion:
    """The rules that each judge found broken, of those that both check."""

    first: list[str]
    second: list[str]
    told: list[str]

    @property
    def agrees(self) -> bool:
        return self.first == self.second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "agrees": self.agrees}

    def __str__(self) -> str:
        found = f"the second judge finds {', '.join(self.second) or 'nothing'} broken"
        if self.agrees:
            return f"{found}, and agrees"
        return "\n".join(
            [f"{found}, and DISAGREES: the first one finds {', '.join(self.first) or 'nothing'}", *self.told]
        )


def ask(found: Evidence, judged: NemesisVerdict) -> SecondOpinion:
    broken = second_judge.judge(second_judge.read(history.write(found, found.folder / history.NAME)))
    only = set(second_judge.RULES) - (NOT_OF_KAFKA if isinstance(found, KafkaEvidence) else set())
    first = {
        one.name.split()[0] for one in judged.findings if not one.ok and one.name and one.name not in BESIDE_IT
    } & only
    second = broken.keys() & only
    told = [f"  {rule}: {len(broken[rule])}, such as {broken[rule][0]}" for rule in _in_order(second)]
    return SecondOpinion(_in_order(first), _in_order(second), told)


def _in_order(rules: set[str]) -> list[str]:
    return sorted(rules, key=second_judge.RULES.index)


def evidence(folder: Path) -> tuple[Evidence, NemesisVerdict]:
    """By the rules of its source."""
    if (found := Evidence(folder)).about.get("source") != "kafka":
        return found, verdict.judge(found)
    of_kafka = KafkaEvidence(folder)
    return of_kafka, kafka_judge.judge(of_kafka)


def main(place: Path) -> int:
    if place.suffix == ".jsonl":
        broken = second_judge.judge(second_judge.read(place))
        print(second_judge.told(broken))
        return 1 if broken else 0
    with tempfile.TemporaryDirectory() as unpacked:
        if place.is_file():
            with tarfile.open(place) as tar:
                tar.extractall(unpacked, filter="data")
        found, judged = evidence(Path(unpacked) if place.is_file() else place)
        opinion = ask(found, judged)
    print(f"first judge: {judged.word}: {judged.why}\n{opinion}")
    return 1 if opinion.second or not opinion.agrees else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
