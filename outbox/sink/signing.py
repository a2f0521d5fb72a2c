"""Signs requests for Amazon OpenSearch Service (AWS SigV4) by botocore's signer, with the credentials that botocore
finds and renews. The only module that imports botocore; it sends nothing to the server."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError
from botocore.session import Session

from outbox.sink.exchange import NotSigned

# A proxy may change any other header on the way.
_SIGNED: Final = ("content-type",)
SERVICE: Final = "es"
_PORTS: Final = {"http": 80, "https": 443}
# Of a role's credentials, which are asked for over the network: botocore would wait for minutes, and the request's
# deadline goes on meanwhile.
_PATIENCE: Final = Config(connect_timeout=2, read_timeout=3, retries={"total_max_attempts": 2})
NO_CREDENTIALS: Final = (
    "ELASTIC_AWS_REGION is set, and no AWS credentials are found; nothing was sent. Give AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or a role to the machine or pod"
)
UNUSABLE: Final = (
    "the AWS credentials cannot be read or renewed; nothing was sent. Try aws sts get-caller-identity here"
)


class AwsSigner:
    """Safe for several lanes. Renews temporary credentials before they expire; keys in a file are read once."""

    def __init__(self, region: str) -> None:
        # At debug level botocore logs what it signs, the session's token included.
        logging.getLogger("botocore").setLevel(logging.WARNING)
        self._region = region
        self._session: Any = Session()
        self._session.set_default_client_config(_PATIENCE)
        self._lock = threading.Lock()  # botocore locks a renewal, and not the search before it

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The headers to add: host, date, token and signature. `url` is as it goes out, path and query encoded."""
        address, _, query = url.partition("?")
        signed = {name: headers[name] for name in _SIGNED if name in headers}
        # Decoded here, so that botocore encodes all of it. AWS does, and a raw `*` or `,` would be another signature.
        parameters = parse_qsl(query, keep_blank_values=True)
        request = AWSRequest(method, address, {"host": _host(address), **signed}, body, parameters)
        SigV4Auth(self._credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())

    def _credentials(self) -> Any:
        """As they are now: the key, the secret and the token of one moment."""
        try:
            with self._lock:
                found = self._session.get_credentials()
            frozen = found and found.get_frozen_credentials()
        except Exception as error:
            raise NotSigned(f"{UNUSABLE} ({type(error).__name__}{_said(error)})") from error
        if not frozen:
            raise NotSigned(NO_CREDENTIALS)
        return frozen


def _host(address: str) -> str:
    """As it is sent: given explicitly, so that what is signed and what is sent cannot differ."""
    parts = urlsplit(address)
    return parts.netloc.lower().removesuffix(f":{_PORTS[parts.scheme]}")


def _said(error: Exception) -> str:
    """What botocore says itself. A helper program's output is not repeated: it may hold a key."""
    own = isinstance(error, BotoCoreError | ClientError) and not isinstance(error, CredentialRetrievalError)
    return f": {error}" if own else ""
