"""The chart: it reads the files of deploy/kubernetes, and its values stand for what the overlays patch."""

from typing import Any

import pytest

from outbox import __version__
from tests.fixtures.deployment import read_yaml
from tests.fixtures.embedded import cannot_show
from tests.fixtures.helm import CHART, KUBERNETES, NAMESPACES, by_name, expected, helm_program, rendered
from tests.fixtures.kustomize import build, containers

BASE = by_name(build(KUBERNETES / "base"))


def part(resources: dict[tuple[str, str], Any], name: str) -> Any:
    return resources["Deployment", f"outbox-{name}"]


def test_the_chart_is_of_this_version_and_reads_the_manifests() -> None:
    chart = read_yaml(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert (CHART / "kubernetes").resolve() == KUBERNETES


@pytest.mark.parametrize("overlay", NAMESPACES)
def test_the_values_say_what_the_overlay_patches(overlay: str) -> None:
    """Without helm; that it renders them so is asked of helm itself."""
    usual = read_yaml(CHART / "values.yaml")
    values = {**usual, **read_yaml(CHART / f"values-{overlay}.yaml")}
    built = by_name(build(KUBERNETES / "overlays" / overlay))
    config = BASE["ConfigMap", "outbox"]["data"] | values["config"]
    assert built["ConfigMap", "outbox"]["data"] == config
    assert part(built, "projector")["spec"].get("replicas") == values["replicas"]
    [projector], [console] = containers(part(built, "projector")), containers(part(built, "console"))
    limits = values["projector"].get("resources", {}).get("limits", {})
    [plain] = containers(part(BASE, "projector"))
    assert projector["resources"]["limits"] == plain["resources"]["limits"] | limits
    [plain] = containers(part(BASE, "console"))
    assert console["env"] == plain["env"] + values["console"]["env"]
    ports = [port["port"] for port in built["NetworkPolicy", "outbox"]["spec"]["egress"][1]["ports"]]
    assert ports == [5432, 9200, 443, *values["egressPorts"]]
    added = {name for name, _ in set(built) - set(BASE)}
    kinds = {
        "monitoring": {"ServiceMonitor", "PrometheusRule"},
        "autoscaling": {"ScaledObject", "TriggerAuthentication"},
    }
    kinds["kafka-autoscaling"] = kinds["autoscaling"]
    assert added == {kind for component in values["components"] for kind in kinds[component]}


@pytest.mark.release("needs helm; scripts/deployed kubernetes builds it and asks the same")
@pytest.mark.parametrize("overlay", NAMESPACES)
def test_helm_renders_what_the_overlay_has(overlay: str) -> None:
    helm = helm_program()
    if helm is None:
        cannot_show("helm is not on the PATH; scripts/deployed kubernetes builds it and compares the same")
    assert by_name(rendered(helm, overlay)) == by_name(expected(overlay))
