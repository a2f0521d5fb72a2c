"""Whether what OUTBOX_READ_DATABASE_URL names can be read in place of the database. Pure: asks nobody."""

from dataclasses import dataclass
from typing import Final

# What changed on the primary since is compared as it was. A replica that is well is a second behind, or less.
MOST_BEHIND_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """`behind_seconds`: since the last change that it has; 0 where it has all that the primary had just before."""

    same_system: bool
    same_database: bool
    same_server: bool
    standby: bool
    behind_seconds: float = 0.0

    @property
    def refusal(self) -> str | None:
        """Why nothing that is read there may count."""
        if not self.same_system:
            return "it belongs to another PostgreSQL cluster, with data of its own"
        if not self.same_database:
            return "it is another database of the cluster"
        if not self.standby and not self.same_server:
            return "it is a replica no more: it was promoted, and goes its own way"
        return None

    @property
    def is_late(self) -> bool:
        return self.behind_seconds > MOST_BEHIND_SECONDS

    @property
    def delay(self) -> str:
        if self.same_server:
            return "it is the primary itself by another address"
        return f"the replica is {self.behind_seconds:,.0f} s behind"
