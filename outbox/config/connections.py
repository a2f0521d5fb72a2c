"""Owns the settings of the two servers, PostgreSQL and Elasticsearch (or OpenSearch); it does not connect to them."""

from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from outbox.config.declaration import (
    CloudId,
    Dsn,
    IndexMap,
    IndexName,
    OneLineSecret,
    Section,
    ServerAddresses,
    cloud_address,
    no_entries,
    setting,
)
from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.redact import redact_dsn

_DSN = "`postgresql://user:password@host:5432/name`; special characters in the password are percent-encoded"
NO_DATABASE = ConfigProblem("DATABASE_URL", "is required and not set", f"Use {_DSN}, or start with `outbox up`.")


def _same_as_url(validated: dict[str, Any]) -> Any:
    return validated.get("url")


def _address(variable: str, default: Any, default_text: str) -> Any:
    return setting(variable, default, default_text, accepts=_DSN, secret=True, show=redact_dsn)


class DatabaseSettings(Section):
    """PostgreSQL: its address."""

    url: Dsn | None = _address("DATABASE_URL", None, "required")
    """The PostgreSQL database that holds the outbox table. `postgresql+psycopg://` is accepted too. It is never shown
    with its password."""
    direct_url: Dsn | None = _address("OUTBOX_DIRECT_DATABASE_URL", _same_as_url, "`DATABASE_URL`")
    """The same database without pgbouncer, for `migrate` and LISTEN. Needed if `DATABASE_URL` goes through a pooler in
    transaction mode: neither works there."""
    read_url: Dsn | None = _address("OUTBOX_READ_DATABASE_URL", _same_as_url, "`DATABASE_URL`")
    """A replica of the same database, for what `verify` and the plan of `repair` read. Takes load off the primary; what
    differs is read again there. What is written is never read from a replica: it may lag behind the version that was
    drawn, and old content would win."""
    prepare: bool = setting("OUTBOX_PREPARE", True)
    """Keep prepared statements for claim and settle: less CPU on the database, and a document is searchable sooner.
    Where a pooler such as pgbouncer is found between, none are kept whatever this says. `false` for one that cannot be
    found."""

    @property
    def dsn(self) -> str:
        return _plain(self.url)

    @property
    def direct_dsn(self) -> str:
        return _plain(self.direct_url)

    @property
    def has_replica(self) -> bool:
        return self.read_dsn != self.dsn

    @property
    def read_dsn(self) -> str:
        return _plain(self.read_url)


def _plain(url: SecretStr | None) -> str:
    if url is None:
        raise ConfigurationError([NO_DATABASE])
    return url.get_secret_value()


class ElasticSettings(Section):
    """Elasticsearch or OpenSearch: its address, the login, and the index of each entity type."""

    url: ServerAddresses = setting(
        "ELASTIC_URL",
        "http://localhost:9200",
        accepts="`http://host:9200` or `https://host:9200`, or a list of them separated by commas; credentials go to"
        " `ELASTIC_USERNAME` and `ELASTIC_PASSWORD`, or `ELASTIC_API_KEY`",
        show=redact_dsn,  # a rejected address is not repeated either: its query may hold a key
    )
    """The search server, Elasticsearch or OpenSearch, or several nodes of one cluster. With several, requests go round;
    a node that does not answer is left out and asked again later, and the others take its requests. Credentials have
    settings of their own, the same for all nodes."""
    cloud_id: CloudId | None = setting(
        "ELASTIC_CLOUD_ID", accepts="the Cloud ID as the deployment's page shows it, `NAME:BASE64`", show=redact_dsn
    )
    """The Cloud ID of a deployment in Elastic Cloud, instead of `ELASTIC_URL`. It holds an address and no secret;
    credentials are needed as well."""
    product: Literal["auto", "elasticsearch", "opensearch"] = setting("ELASTIC_PRODUCT", "auto")
    """Which product the server is. `auto` asks it. Name it where the credentials may not ask (`GET /`), or where a
    proxy removes the header by which Elasticsearch names itself."""
    index: IndexName = setting(
        "ELASTIC_INDEX", "search-index", accepts="a lower case index or alias name without wildcards"
    )
    """The index or alias that documents are written to. An alias lets `outbox rebuild` swap the index behind it."""
    index_map: IndexMap = setting(
        "ELASTIC_INDEX_MAP",
        no_entries,
        "`{}`",
        accepts='JSON, such as `{"article": "articles"}`, with lower case index names',
    )
    """Index per entity type; all other types go to `ELASTIC_INDEX`. More than one target needs `outbox migrate
    --by-type`."""
    api_key: OneLineSecret | None = setting("ELASTIC_API_KEY", accepts="the encoded key on one line", secret=True)
    """API key, encoded as Elasticsearch returns it. Better than a password: it can be limited to the index. OpenSearch
    has keys from 3.7 on."""
    username: str | None = setting("ELASTIC_USERNAME")
    """User name for basic authentication. Together with `ELASTIC_PASSWORD`; not together with `ELASTIC_API_KEY`."""
    password: OneLineSecret | None = setting("ELASTIC_PASSWORD", accepts="the password on one line", secret=True)
    """Password for basic authentication."""
    aws_region: str | None = setting(
        "ELASTIC_AWS_REGION", pattern=r"^[a-z0-9-]{1,40}$", accepts="a region such as `eu-central-1`"
    )
    """Sign every request (AWS SigV4) for a domain of Amazon OpenSearch Service in this region. Needs `pip install
    'outbox-projector[aws]'`. The credentials are those that botocore finds: `AWS_*`, its files, or the role of the
    machine or pod. Not together with `ELASTIC_API_KEY`, `ELASTIC_USERNAME` or `ELASTIC_PASSWORD`."""
    ca_certs: Path | None = setting("ELASTIC_CA_CERTS", None, "the system's", accepts="the path of a readable PEM file")
    """File of certificate authorities that sign the server's certificate."""
    timeout_seconds: float = setting("ELASTIC_TIMEOUT_SECONDS", 30.0, gt=0)
    """Longest wait for one request, connect to last byte. The effective deadline is the smallest of this, 0.7 x lease
    and grace - 5 s."""
    # Kept, because keys are rotated: they are read again when they change.
    api_key_file: Path | None = None
    password_file: Path | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        return (cloud_address(self.cloud_id),) if self.cloud_id else tuple(self.url.split(","))

    def index_for(self, entity_type: str) -> str:
        """The target of an entity type. A row chooses its target only through this map."""
        return self.index_map.get(entity_type, self.index)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.index, *self.index_map.values()]))
