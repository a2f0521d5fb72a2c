"""Owns the errors of the embedded servers, each with its remedy. It does not print."""

from __future__ import annotations

from outbox.errors import DependencyDown, OutboxError


class EmbeddedServerFailed(DependencyDown):
    """An embedded server did not start. The end of its log follows."""


class SetupUnusable(OutboxError):
    """Something on this machine or in its settings is missing or unusable. Correct what the detail names."""

    exit_code = 78


class ConnectorRefused(SetupUnusable):
    """Kafka Connect refused the configuration of a connector. Correct what its reason names."""


class PortTaken(DependencyDown):
    """The port is in use. Stop the program that uses it, or leave the port out to use a free one."""


class FolderInUse(DependencyDown):
    """Another process runs a server in this folder. Stop that process, or set OUTBOX_DATA_DIR to another folder."""


class MavenMissing(SetupUnusable):
    """There is no server to start, and no Maven to download it. Install Maven (Debian: `apt-get install
    maven`); or, with Docker, run `docker compose -f docker-compose.infra.yml up -d db es` and set
    DATABASE_URL=postgresql://wordloom:wordloom@localhost:5435/wordloom_dev and ELASTIC_URL=http://localhost:9200; or
    set OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""


class MavenHasNoJava(SetupUnusable):
    """Maven is installed, but no Java to run it. Install one (Debian: `apt-get install openjdk-17-jre-headless`), or
    the extra `embedded`, which includes one for this."""


class FetchFailed(DependencyDown):
    """Maven could not download the server or its Java. Check the network and Maven's settings and try again
    (behind a proxy set HTTPS_PROXY); or, with Docker, run `docker compose -f docker-compose.infra.yml up -d db es` and
    set DATABASE_URL and ELASTIC_URL; or set OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""


class ArchiveDamaged(DependencyDown):
    """The downloaded archive has the wrong SHA-256: it was cut or changed. It was removed. Try again. If the error
    stays, check the proxy or mirror between here and Maven Central."""


class NoSpace(SetupUnusable):
    """The disk has too little free space. Free some space, or set OUTBOX_DATA_DIR to a folder on a larger disk."""


class FolderNotWritable(SetupUnusable):
    """The folder for the embedded servers is not writable. Set OUTBOX_DATA_DIR to a writable folder."""


class ProxyUnusable(SetupUnusable):
    """The proxy settings of the environment cannot be passed to Maven. Correct HTTPS_PROXY (http://host:port) or
    ~/.m2/settings.xml, or unset HTTPS_PROXY if no proxy is needed."""


class DistributionUnusable(SetupUnusable):
    """The search server cannot be used. Set OUTBOX_ES_HOME to the root folder (the one with `lib/` and `modules/`) of
    Elasticsearch 8 or 9, or with `--product opensearch` of OpenSearch 2 or 3; or unset it to download one."""


class JavaMissing(SetupUnusable):
    """There is no suitable Java for this server. Install one, or set JAVA_HOME. For Elasticsearch 8, OpenSearch 2 and
    Kafka: `apt-get install openjdk-17-jre-headless`. For Elasticsearch 9 a full JDK of version 21 or later, such
    as the package `openjdk-21-jdk-headless`; OpenSearch 3 runs on that too."""


class PostgresMissing(SetupUnusable):
    """There is no PostgreSQL to start. Install the extra `embedded`, which includes one, or set DATABASE_URL."""


class FolderUnreachable(SetupUnusable):
    """The servers do not run as root, and the user they run as cannot reach this folder. Set OUTBOX_DATA_DIR to a
    folder whose parents everyone may enter."""


class FolderNotOurs(SetupUnusable):
    """This path is a link or belongs to another user, who could redirect what we read or write. Set OUTBOX_DATA_DIR to
    your own folder, in a folder that is not writable for everyone; or remove this path."""


class ProgramsUnusable(DependencyDown):
    """The servers' account cannot run the server programs of the Python environment, nor a copy of them. Set
    OUTBOX_DATA_DIR to a folder on a disk that is not mounted noexec, or remove .venv and install again."""
