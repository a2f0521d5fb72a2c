"""The composition root: the only room that builds pools, clients and services and joins them.

`daemon` joins what `outbox run` needs; `desk` joins what people need (cli, REST, console, library). They are apart so
that a command does not wait for the imports of the other.
"""

from outbox.config import Settings
from outbox.policy.document import Naming


def naming(settings: Settings) -> Naming:
    """How entities name their documents here."""
    return Naming("{entity_type}" in settings.document_id, settings.elastic.index_for)
