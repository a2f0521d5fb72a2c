"""Owns what a run contains: a set of ingredients, fixed or composed from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import LiteralString

from tests.nemesis.ids import MADE_BY, TEXT, Ids
from tests.nemesis.parts import PARTS
from tests.nemesis.schedule import DECKS, KAFKA_DECKS

# What each is: `outbox nemesis --wide` prints the names, `--without` takes some away. Payloads are in every run.
SETTINGS: Mapping[str, str] = {
    "kafka": "producers write to the event log, workers read a topic",
    "adopted": "the table of events was there before the product",
    "producer-versions": "the versions of payloads are the producer's own",
    "late-view": "the view is created after the workers have started",
    "small-batches": "five events in a batch",
    "large-batches": "a hundred events in a batch",
    "prune-3s": "daemons prune what was done 3 s ago",
    "prune-off": "only people prune",
}
DAEMONS: Mapping[str, tuple[str, str]] = {
    "small-batches": ("OUTBOX_BATCH_SIZE", "5"),
    "large-batches": ("OUTBOX_BATCH_SIZE", "100"),
    "prune-3s": ("OUTBOX_RETENTION_DAYS", f"{3 / 86_400:.9f}"),
    "prune-off": ("OUTBOX_RETENTION_DAYS", "0"),
}
# Beside the people's commands of a fixed run. What changes the schema is done in a lane of its own.
MORE_COMMANDS = ("repair", "backfill", "refresh")
SCHEMA_ACTS = ("view_away", "view_frozen", "sequence_back")
OF_PART: Mapping[str, str] = {"parcels": "partition", "drafts": "move"}  # the act that its part is made for
MOST_COMMANDS = 4
NOT_WITH_KAFKA = frozenset(
    {"adopted", "drafts", "sequence_back", "prune", "rebuild", "prune-3s", "prune-off", "repair", "backfill", "refresh"}
)
# A sequence that falls back takes the versions of payloads with it, unless these are the producer's own.
ADOPTABLE: Mapping[LiteralString, LiteralString] = {"uuid": "uuid", "bigint": "bigint", "integer": "integer"}


@dataclass(frozen=True, slots=True)
class Recipe:
    ingredients: frozenset[str]
    name: str = "fixed"

    def has(self, name: str) -> bool:
        return name in self.ingredients

    @property
    def parts(self) -> list[str]:
        return [name for name in PARTS if self.has(name)]

    @property
    def ids(self) -> Ids:
        return next((Ids(kind) for kind in MADE_BY if self.has(f"ids:{kind}")), TEXT)

    @property
    def decks(self) -> dict[str, tuple[str, ...]]:
        """Each lane with what it does in this run; one that does nothing is left out."""
        base: Mapping[str, Sequence[str]] = KAFKA_DECKS if self.has("kafka") else DECKS
        decks = {lane: tuple(kind for kind in deck if self.has(kind)) for lane, deck in base.items()}
        decks["people"] += tuple(kind for kind in MORE_COMMANDS if self.has(kind))
        acts = [*SCHEMA_ACTS, *(act for part, act in OF_PART.items() if self.has(part))]
        decks["schema"] = tuple(act for act in acts if self.has(act) or act in OF_PART.values())
        return {lane: deck for lane, deck in decks.items() if deck}

    @property
    def settings(self) -> dict[str, str]:
        """Of the daemons."""
        return {name: value for choice, (name, value) in DAEMONS.items() if self.has(choice)}

    @property
    def weights(self) -> dict[str, float]:
        """The share of the acts that each part has: as in the fixed run, or, of many parts, two thirds in all."""
        shares = {name: PARTS[name].share for name in self.parts}
        total = sum(shares.values())
        scale = 1.0 if self.name == "fixed" else 0.4 / total if total else 1.0
        return {name: share * scale for name, share in shares.items()}

    def without(self, names: Collection[str]) -> Recipe:
        return replace(self, ingredients=self.ingredients - frozenset(names))

    def __str__(self) -> str:
        return ", ".join(in_order(self.ingredients))


def in_order(names: Iterable[str]) -> list[str]:
    """Parts first, then ids, settings, faults and commands."""
    order = [*PARTS, *(f"ids:{kind}" for kind in MADE_BY), *SETTINGS]
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def fixed(*, kafka: bool = False) -> Recipe:
    decks = KAFKA_DECKS if kafka else DECKS
    acts = {kind for deck in decks.values() for kind in deck}
    return Recipe(frozenset({"joined", "routed", "linked", *acts, *(("kafka",) if kafka else ())}))


def compose(seed: int, *, kafka: bool | None = None) -> Recipe:
    """The same for the same seed. `kafka`: asked for, or refused; left out: one seed in twelve."""
    dice = random.Random(f"{seed}:wide")
    found: set[str] = set(dice.sample(list(PARTS), dice.choice((2, 3, 3, 4, 4, 5, 8))))
    found.add(f"ids:{dice.choice(list(MADE_BY))}")
    found |= {name for name in ("adopted", "late-view") if dice.random() < 0.3}
    found |= {dice.choice(group) for group in (("small-batches", "large-batches", ""), ("prune-3s", "prune-off", ""))}
    found |= set(
        _some(dice, (kind for lane in ("workers", "freezer", "postgresql", "elasticsearch") for kind in DECKS[lane]))
    )
    commands = dice.sample([*DECKS["people"], *MORE_COMMANDS], MOST_COMMANDS)
    found |= set(commands) | {"replay"}
    found |= {act for act in SCHEMA_ACTS if dice.random() < 0.35}
    found |= {"producer-versions"} if dice.random() < 0.3 else set()
    of_kafka = dice.random() < 1 / 12
    if of_kafka if kafka is None else kafka:
        found |= {"kafka", "verify", *_some(dice, KAFKA_DECKS["kafka"])}
        found -= NOT_WITH_KAFKA | {kind for kind in DECKS["workers"] if kind not in KAFKA_DECKS["workers"]}
    return Recipe(frozenset(_consistent(found)), f"wide seed {seed}")


def _some(dice: random.Random, kinds: Iterable[str]) -> Iterator[str]:
    """Two thirds of them."""
    return (kind for kind in dict.fromkeys(kinds) if dice.random() < 0.67)


def _consistent(found: set[str]) -> set[str]:
    found.discard("")
    if "ids:date" in found:  # `outbox attach` refuses them: their text depends on the session
        found -= {name for name, part in PARTS.items() if part.attached}
    if "sequence_back" in found:
        found -= {"drafts"}
        found.add("producer-versions")
    if "prune-3s" in found:
        found.discard("prune")  # nothing is left for people
    if not any(name in PARTS for name in found):
        found -= {"late-view", "view_away", "view_frozen"}
    return found
