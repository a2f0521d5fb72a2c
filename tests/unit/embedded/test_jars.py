"""The list of Kafka's jars: complete, by digest, from no particular place; and the files that a broker reads."""

import re
from xml.etree import ElementTree

from outbox.embedded.pins import kafka_jars


def test_the_list_holds_broker_tools_connect_and_a_log_each_with_its_digest() -> None:
    jars = {jar.artifact: jar for jar in kafka_jars().artifacts}
    assert {"kafka_2.13", "kafka-tools", "connect-runtime", "connect-transforms", "log4j-slf4j-impl"} <= jars.keys()
    assert {jars[name].version for name in ("kafka_2.13", "kafka-tools", "connect-runtime")} == {"4.1.0"}
    assert [jar.name for jar in jars.values() if not re.fullmatch(r"[0-9a-f]{64}", jar.sha256)] == []
    assert len({jar.name for jar in jars.values()}) == len(kafka_jars().artifacts)


def test_maven_is_asked_for_exactly_these_jars_and_for_nothing_they_want() -> None:
    jars = kafka_jars()
    asked = ElementTree.fromstring(jars.as_project()).findall("dependencies/dependency")
    assert [one.findtext("artifactId") for one in asked] == [jar.artifact for jar in jars.artifacts]
    assert all(one.findtext("exclusions/exclusion/artifactId") == "*" for one in asked)
    assert "://" not in jars.as_project()
