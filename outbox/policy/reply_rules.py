"""Owns the one table of what the refusals of Elasticsearch and OpenSearch mean. To add a name that was met, add it to a
row here."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from outbox.policy.outcome import Reason


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits when all that it names fits: a status, a type of this cause, the beginning of its reason. Anchored: a reason
    quotes names and values of the document, and these must not choose their own class."""

    reason: Reason
    name: str
    why: str
    statuses: tuple[int, ...] = ()
    types: str = ""  # parted by blanks
    starts: str = ""  # a pattern
    away: bool = False  # never the document's doing: the index or the cluster is not there to write to
    contested: bool = False  # may be over in a moment, as another request's doing is: sent once more at once
    late: bool = False  # may be the doing of a short wait: sent once more with a longer one


auth, config = partial(Rule, Reason.ES_AUTH), partial(Rule, Reason.ES_CONFIG)
down, document = partial(Rule, Reason.ES_5XX), partial(Rule, Reason.ES_REJECTED_DOCUMENT)

# Read from the top, for the outermost cause first: so a document's fault stays its own, whatever it quotes.
RULES: Final[tuple[Rule, ...]] = (
    auth(
        "credentials",
        "no or wrong credentials: check ELASTIC_API_KEY, or ELASTIC_USERNAME and ELASTIC_PASSWORD, or for a domain of"
        " AWS set ELASTIC_AWS_REGION",
        statuses=(401,),
    ),
    auth(
        "privileges",
        "the key or role lacks a right on this index: docs/security.md has what it needs",
        statuses=(403,),
        types="security_exception",
    ),
    config(
        "security not ready",  # a text, not JSON; its filter says the same as a security_exception
        "OpenSearch's security plugin is not initialised: wait for its start, or run securityadmin once",
        statuses=(503,),
        starts="OpenSearch Security not initialized",
    ),
    down(
        "not recovered",
        "the cluster has no master, or has not recovered its state yet",
        statuses=(503,),
        types="cluster_block_exception",
        away=True,
    ),
    Rule(
        Reason.ES_BLOCKED,
        "blocked",
        "a block forbids writes: one set by a person, or the disk's flood stage (a 429 that is no overload)",
        types="cluster_block_exception index_create_block_exception",
    ),
    Rule(
        Reason.ES_INDEX_MISSING,
        "index missing",
        "the index or alias does not exist: run `outbox index create`",
        types="index_not_found_exception aliases_not_found_exception alias_not_found_exception",
    ),
    config(
        "index name",
        "the target's name is not allowed: check ELASTIC_INDEX and ELASTIC_INDEX_MAP",
        types="invalid_index_name_exception invalid_alias_name_exception",
    ),
    config("closed", "the index is closed: open it", types="index_closed_exception"),
    config(
        "media type",
        "the server does not speak this client's protocol: use Elasticsearch 8 or 9, or OpenSearch 2 or 3",
        types="media_type_header_exception",
    ),
    config(
        "write index",
        "the alias has no write index: set is_write_index on one of its indices",
        types="illegal_argument_exception",
        starts="no write index is defined for alias",
    ),
    config(
        "shard limit",
        "the cluster may not open more shards: see cluster.max_shards_per_node",
        types="illegal_argument_exception validation_exception",
        starts=r"(Validation Failed: 1: )?this action would add \[",
    ),
    config(
        "data stream",
        "the target is a data stream, which takes no versions: write to an index",
        types="illegal_argument_exception",
        starts="only write ops with an op_type of create are allowed in data streams",
    ),
    config(
        "pipeline",
        "the index names an ingest pipeline that does not exist",
        types="illegal_argument_exception",
        starts=r"pipeline with id \[",
    ),
    down(
        # No overload: the threads of a node that is being stopped take nothing more. What is refused may quote a
        # document, so the end of the text decides, which is the server's own.
        "node stopping",
        "the node was being stopped, and was when this was sent a second time",
        types="es_rejected_execution_exception rejected_execution_exception",
        starts=r"rejected execution of .* \(shutdown\)\Z",
        away=True,
        contested=True,
        late=True,
    ),
    Rule(
        Reason.ES_429,
        "pressure",
        "the search server is overloaded, or this document alone is too much for it",
        types="es_rejected_execution_exception rejected_execution_exception circuit_breaking_exception",
    ),
    document(
        "routing missing",
        "the mapping demands a routing and the event has none",
        statuses=(400,),
        types="routing_missing_exception",
    ),
    document(
        "not an object",  # a 500 on 8.14, a 400 on 9.4 (measured): the same document's fault
        "the document is not a JSON object",
        types="not_x_content_exception",
    ),
    document(
        "contested field",  # one request brings a new field with 1, another with 1.5: the later of the two is refused
        "the field has another type in the mapping, and had when this was sent a second time: correct the document or"
        " the mapping, then replay",
        statuses=(400,),
        types="illegal_argument_exception",
        starts=r"mapper \[.*\] cannot be changed from type \[",
        contested=True,
    ),
    document(
        "document",
        "this document does not fit the mapping or a limit: correct it or the mapping, then replay",
        statuses=(400,),
        types="document_parsing_exception mapper_parsing_exception strict_dynamic_mapping_exception"
        " mapper_exception illegal_argument_exception action_request_validation_exception"
        " x_content_parse_exception x_content_e_o_f_exception parsing_exception parse_exception"
        " json_parse_exception json_e_o_f_exception number_format_exception date_time_parse_exception"
        " input_coercion_exception stream_constraints_exception max_bytes_length_exceeded_exception"
        " array_index_out_of_bounds_exception",
    ),
    down(
        "new field, no answer",  # within the wait that the request allows, the same one as for a missing primary
        "the master did not take a new field into the mapping in time",
        types="process_cluster_event_timeout_exception",
        away=True,
        late=True,
    ),
    down(
        "new field, not known to the shard",
        "the master took a new field into the mapping, and the shard did not know it in time",
        statuses=(500,),
        types="mapper_exception",
        starts="timed out while waiting for a dynamic mapping update",
        away=True,
        late=True,
    ),
    down(
        # Met while one node of three is restarted, within the moments in which the master notices and another copy
        # becomes the primary. Sent once more it waits for that; a shard without any copy says `unavailable`.
        "node leaving",
        "the node of the primary shard was leaving, and was when this was sent a second time",
        types="node_closed_exception node_not_connected_exception node_disconnected_exception"
        " retry_on_primary_exception shard_not_in_primary_mode_exception",
        away=True,
        contested=True,
        late=True,
    ),
    down(
        "unavailable",
        "the shard, its node or the master is not there now",
        types="unavailable_shards_exception no_shard_available_action_exception master_not_discovered_exception"
        " cluster_manager_not_discovered_exception not_master_exception not_cluster_manager_exception"
        " receive_timeout_transport_exception shard_not_found_exception"
        " index_shard_closed_exception already_closed_exception index_shard_not_started_exception"
        " index_shard_recovering_exception index_shard_relocated_exception"
        " primary_missing_action_exception no_node_available_exception"
        " illegal_index_shard_state_exception timeout_exception connect_transport_exception"
        " failed_to_commit_cluster_state_exception",
        away=True,
    ),
)
# Asked when no cause is known: what a proxy, or a server without a body, says.
BY_STATUS: Final[tuple[Rule, ...]] = (
    RULES[0],
    Rule(Reason.TOO_LARGE, "too large", "alone over http.max_content_length or a proxy's limit", statuses=(413,)),
    auth(
        "forbidden",
        "the server or a proxy forbids this request; for a domain of AWS check the credentials, ELASTIC_AWS_REGION, its"
        " access policy and the clock of this machine",
        statuses=(403,),
    ),
    Rule(Reason.ES_429, "throttled", "too many requests", statuses=(429,)),
    Rule(Reason.TIMEOUT, "request timeout", "the server or a proxy gave up waiting", statuses=(408,)),
    down("server away", "the server or a proxy has no answer now", statuses=(502, 503, 504), away=True),
)
NO_TYPE: Final = down("server error", "the server failed and named no type of error", statuses=(500,))
UNKNOWN: Final = Rule(Reason.UNKNOWN, "unknown", "no rule knows this: tried again up to the limit, and counted")
OUR_REQUEST: Final = config("our request", "the whole request was refused: a bug or a setting, never the rows' fault")
