"""`outbox up --kafka`: events go from PostgreSQL through Debezium and Kafka to the index, and all of it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch
from urllib3.exceptions import HTTPError

from outbox.embedded.connect_api import ConnectApi
from outbox.embedded.errors import ConnectorRefused
from outbox.embedded.folders import default_data_dir
from outbox.embedded.pins import DEBEZIUM, kafka_jars
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.processes import StartProcess, clean_environment
from tests.fixtures.waiting import eventually

TOPIC, GROUP = "outbox.search_outbox_log", "outbox-projector"


@pytest.fixture
def data_dir(server_folder: Path) -> Path:
    """Its own, with the programs that were fetched already."""
    for name in (kafka_jars().name, DEBEZIUM.name):
        (server_folder / name).symlink_to(default_data_dir() / name)
    return server_folder


def asked(where: dict[str, Any], settings: dict[str, str], *command: str) -> Any:
    """What a command says in another terminal, with the settings that `outbox up` prints."""
    given = {
        "DATABASE_URL_FILE": where["database_url_file"],
        "ELASTIC_URL": where["elastic_url"],
        "ELASTIC_INDEX": where["index"],
        "OUTBOX_SOURCE": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": where["kafka"],
        "KAFKA_CONNECT_URL": where["connect_url"],
        "KAFKA_CONNECT_USERNAME": where["connect_username"],
        "KAFKA_CONNECT_PASSWORD_FILE": where["connect_password_file"],
    }
    argv = [sys.executable, "-m", "outbox", *command, "--json"]
    env = clean_environment(given | settings)
    return json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=False).stdout)


def end_of_connect(data_dir: Path) -> None:
    """As the system does where memory is low."""
    (found,) = [
        each
        for each in psutil.process_iter(["cmdline"])
        if "org.apache.kafka.connect.cli.ConnectStandalone" in each.info["cmdline"]
        and any(str(data_dir) in part for part in each.info["cmdline"])
    ]
    found.kill()


def is_running(api: ConnectApi) -> bool:
    try:
        return api.states("outbox-log") == ["RUNNING", "RUNNING"]
    except (HTTPError, ConnectorRefused):
        return False


@pytest.mark.release("it starts Kafka Connect with a PostgreSQL of its own")
@pytest.mark.slow
def test_the_sample_reaches_the_index_through_kafka_and_nothing_is_left_running(
    start_process: StartProcess,
    logical_database: str,
    elastic_url: str,
    es: Elasticsearch,
    absent_index: str,
    data_dir: Path,
) -> None:
    given = {"DATABASE_URL": logical_database, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": absent_index}
    settings = {"OUTBOX_DATA_DIR": str(data_dir), "OUTBOX_EVENT_LOG_SLOT": "up_kafka"}
    up = start_process([sys.executable, "-m", "outbox", "up", "--kafka", "--json", "--rate", "20"], **given, **settings)
    where = json.loads(up.wait_for_line('"metrics_url"', 300))
    found = subprocess.run(["sh", "-c", where["search"]], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["hits"]["total"]["value"] > 0
    with pytest.raises(ConnectorRefused, match="401"):
        ConnectApi(where["connect_url"]).states("outbox-log")
    file = Path(where["connect_password_file"])
    password = file.read_text().strip()
    assert ConnectApi(where["connect_url"], password).states("outbox-log") == ["RUNNING", "RUNNING"]
    assert file.stat().st_mode & 0o077 == 0  # nobody else may read it
    told = asked(where, settings, "doctor")
    verdicts = [(each["name"], each["verdict"]) for each in told["findings"] if each["name"] in ("connector", "slot")]
    assert {("connector", "ok"), ("slot", "ok")} <= set(verdicts)
    checked = asked(where, settings, "kafka", "connector", "--check", where["connect_url"])
    assert {each["verdict"] for each in checked["findings"] if each["name"] == "connector"} == {"ok"}
    assert password not in json.dumps([told, checked])
    end_of_connect(data_dir)
    up.wait_for_line("Kafka Connect has ended: starting it again")
    api = ConnectApi(where["connect_url"], password)
    eventually(lambda: is_running(api), what="the connector runs again")
    with psycopg.connect(logical_database, autocommit=True) as connection:
        # All of them: the sample deletes and changes articles meanwhile.
        connection.execute("update outbox_sample.articles set title = 'Zebra crossings'")
        eventually(
            lambda: (es.indices.refresh(index=absent_index), es.count(index=absent_index, q="title:zebra")["count"])[1]
        )
        written = connection.execute("select count(*) from search_outbox_log").fetchone()
        in_the_table = connection.execute("select count(*) from search_outbox_events where op = 'upsert'").fetchone()
    assert written is not None
    assert written[0] >= 300  # the first articles of the sample
    assert in_the_table == (0,)
    desk = KafkaDesk(where["kafka"])
    eventually(lambda: sum(desk.committed(GROUP, TOPIC).values()) >= 300, what="committed offsets")
    running = psutil.Process(up.pid).children(recursive=True)
    up.signal(signal.SIGINT)
    assert up.wait() == 0, up.output
    assert [process for process in running if process.is_running()] == []
