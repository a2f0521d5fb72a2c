"""The OpenAPI document: checked in, current, and every error in it a problem document."""

import json
from pathlib import Path
from typing import Any

from outbox.web.application import document

CHECKED_IN = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_checked_in_document_is_current() -> None:
    assert CHECKED_IN.read_text() == document(), "run scripts/docs"


def test_every_error_is_a_problem_document_and_every_post_takes_a_key() -> None:
    paths: dict[str, Any] = json.loads(document())["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            errors = {status: told for status, told in operation["responses"].items() if int(status) >= 400}
            assert {"400", "401", "403", "429", "503"} <= errors.keys(), path
            assert all("application/problem+json" in told["content"] for told in errors.values()), path
            names = [parameter["name"] for parameter in operation.get("parameters", [])]
            assert ("Idempotency-Key" in names) is (method == "post"), path
            assert operation["x-role"] in ("viewer", "operator", "admin"), path
            assert operation["description"], path
