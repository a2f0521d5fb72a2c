"""Where the test servers come from: the choice, and the Docker way against a Docker that is not there."""

from typing import Any

import pytest
from testcontainers.core import container as testcontainers_container
from testcontainers.core.config import ConnectionMode, testcontainers_config

from tests.fixtures.servers import ContainerServers, choose_servers


class FakeContainer:
    status = "running"
    id = short_id = "f00d"

    def __init__(self, docker: "FakeDocker") -> None:
        self._docker = docker

    def reload(self) -> None: ...

    def get_wrapped_container(self) -> "FakeContainer":
        return self

    def remove(self, **_: Any) -> None:
        self._docker.running.remove(self)


class FakeDocker:
    """What testcontainers asks of its Docker client, with every container up at once on port 49152."""

    def __init__(self) -> None:
        self.created: list[tuple[str, dict[str, Any]]] = []
        self.running: list[FakeContainer] = []
        self.client = self

    def create(self, image: str, **options: Any) -> FakeContainer:
        self.created.append((image, options))
        return FakeContainer(self)

    def start(self, container: FakeContainer) -> None:
        self.running.append(container)

    def get_connection_mode(self) -> ConnectionMode:
        return ConnectionMode.docker_host

    def host(self) -> str:
        return "localhost"

    def port(self, *_: Any) -> str:
        return "49152"

    def close(self) -> None: ...


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    fake = FakeDocker()
    monkeypatch.setattr(testcontainers_container, "DockerClient", lambda **_: fake)
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    return fake


def servers() -> ContainerServers:
    return ContainerServers(postgres_answers=lambda _: True, elasticsearch_answers=lambda _: True)


def test_postgres_in_a_container_gives_its_url_and_is_removed(docker: FakeDocker) -> None:
    with servers().postgres() as url:
        assert url == "postgresql://postgres:test@localhost:49152/postgres"
        assert len(docker.running) == 1
    assert docker.running == []


def test_elasticsearch_in_a_container_gives_its_url_and_is_removed(docker: FakeDocker) -> None:
    with servers().elasticsearch() as url:
        assert url == "http://localhost:49152"
        assert len(docker.running) == 1
    assert docker.running == []


def test_containers_run_the_same_versions_as_the_embedded_stack(docker: FakeDocker) -> None:
    with servers().postgres(), servers().elasticsearch():
        assert [image for image, _ in docker.created] == ["postgres:18", "elasticsearch:8.14.1"]


def test_a_container_is_removed_when_the_tests_in_it_fail(docker: FakeDocker) -> None:
    def fail_inside() -> None:
        with servers().postgres():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert docker.running == []


def test_given_addresses_win_over_every_backend(docker: FakeDocker) -> None:
    given = {"OUTBOX_TEST_DATABASE_URL": "postgresql://there/x", "OUTBOX_TEST_ELASTIC_URL": "http://there"}
    chosen = choose_servers({**given, "OUTBOX_TEST_BACKEND": "containers"})
    with chosen.postgres() as database_url, chosen.elasticsearch() as elastic_url:
        assert (database_url, elastic_url) == ("postgresql://there/x", "http://there")
    assert docker.created == []


def test_no_other_product_is_promised_from_a_container() -> None:
    with pytest.raises(ValueError, match=r"OUTBOX_TEST_PRODUCT.*always elasticsearch:8\.14\.1"):
        choose_servers({"OUTBOX_TEST_BACKEND": "containers", "OUTBOX_TEST_PRODUCT": "opensearch-2"})


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="embedded, containers"):
        choose_servers({"OUTBOX_TEST_BACKEND": "podman"})
