"""A secret is never shown: not in problems, not in a repr, not by `config print`."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from outbox.config import VARIABLES, load_settings
from outbox.errors import ConfigurationError

CANARY = "c4n4ry"
GOOD = {
    "DATABASE_URL": f"postgresql://app:{CANARY}@db/shop?password={CANARY}&sslmode=require",
    "OUTBOX_DIRECT_DATABASE_URL": f"host=db password={CANARY} dbname=shop",
    "OUTBOX_READ_DATABASE_URL": f"postgresql://app:{CANARY}@replica/shop",
    "ELASTIC_USERNAME": "elastic",
    "ELASTIC_PASSWORD": CANARY,
    "KAFKA_CONNECT_USERNAME": "outbox",
    "KAFKA_CONNECT_PASSWORD": CANARY,
    "OUTBOX_WEBHOOK_URL": f"https://hooks.example/services/{CANARY}?token={CANARY}",
    "OUTBOX_WEBHOOK_SECRET": CANARY,
}
BAD = {
    "DATABASE_URL": f"mysql://app:{CANARY}@db/shop",
    "OUTBOX_DIRECT_DATABASE_URL": f"postgresql://app:{CANARY}%zz@db",
    "OUTBOX_READ_DATABASE_URL": f"mysql://app:{CANARY}@replica",
    "ELASTIC_URL": f"http://es:9200,http://elastic:{CANARY},{CANARY}@es",
    "ELASTIC_CLOUD_ID": f"shop:{CANARY}",
    "ELASTIC_API_KEY": f"{CANARY}\n{CANARY}",
    "ELASTIC_PASSWORD": f"{CANARY}\n{CANARY}",
    "KAFKA_CONNECT_URL": f"http://outbox:{CANARY}@connect:8083",
    "KAFKA_CONNECT_PASSWORD": f"{CANARY}\n{CANARY}",
    "OUTBOX_WEBHOOK_URL": f"https://user:{CANARY}@hooks.example/{CANARY}",
    "OUTBOX_WEBHOOK_SECRET": f"{CANARY}\x00",
    "OUTBOX_WEBHOOK_SECRT": CANARY,
}


def test_no_view_of_the_settings_shows_a_secret() -> None:
    settings = load_settings(GOOD)
    views = [repr(settings), str(settings), json.dumps(settings.redacted()), repr(settings.webhook)]
    assert not any(CANARY in view for view in views)


def test_no_problem_shows_a_secret_not_even_in_its_traceback() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(BAD)
    assert {problem.variable for problem in caught.value.problems} == set(BAD)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_config_print_shows_every_variable_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(CANARY)
    environ = {"DATABASE_URL": GOOD["DATABASE_URL"], "ELASTIC_API_KEY_FILE": str(file), "OUTBOX_BATCH_SIZE": "7"}
    shown = load_settings(environ, {"OUTBOX_ENTITY_TYPES": ["a"]}).redacted()
    assert list(shown) == list(VARIABLES)
    assert shown["DATABASE_URL"] == {
        "value": "postgresql://app:***@db/shop?password=***&sslmode=require",
        "source": "environment",
    }
    assert shown["ELASTIC_API_KEY"] == {"value": "***", "source": "file"}
    assert shown["ELASTIC_PASSWORD"] == {"value": None, "source": "default"}
    assert shown["OUTBOX_BATCH_SIZE"] == {"value": 7, "source": "environment"}
    assert shown["OUTBOX_ENTITY_TYPES"] == {"value": ["a"], "source": "flag"}
    json.dumps(shown)
