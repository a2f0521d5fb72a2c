"""Writes settings that make Maven use the proxy of the environment, which it does not read by itself. It runs no Maven.

The proxy's address may contain a password: it is written to a file that only the caller can read, never to arguments or
logs.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from outbox.embedded.errors import ProxyUnusable
from outbox.embedded.safe_files import new_file

NAMESPACE = "http://maven.apache.org/SETTINGS/1.0.0"


def proxy_of_environment() -> SplitResult | None:
    """HTTPS_PROXY, else ALL_PROXY; None for a type that Maven cannot use."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        if given := os.environ.get(name):
            found = urlsplit(given if "://" in given else f"http://{given}")
            try:
                has_port = found.port != 0
            except ValueError:
                has_port = False
            if not has_port:
                raise ProxyUnusable(f"the port in {name} is not a number")  # never the value: it may contain a password
            return found if found.hostname and found.scheme in ("http", "https") else None
    return None


def not_proxied() -> str:
    """NO_PROXY in Maven's form: names separated by bars, a star for any prefix."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    return "|".join(["localhost", "127.*", *(f"*{host}" if host.startswith(".") else host for host in hosts)])


def maven_settings(user_settings: Path, target: Path) -> list[str]:
    """Options that make Maven use the proxy. None without a proxy, or if the user's own settings name one."""
    proxy = proxy_of_environment()
    if proxy is None:
        return []
    tree = _read(user_settings)
    root = tree.getroot()
    if root.find(".//{*}proxy") is not None:
        return []
    namespace = root.tag.removesuffix("settings")  # empty where there is none
    # Maven's own template has an empty list, and two of them are an error.
    proxies = root.find("{*}proxies")
    if proxies is None:
        proxies = ET.SubElement(root, f"{namespace}proxies")
    one = ET.SubElement(proxies, f"{namespace}proxy")
    for key, value in _described(proxy).items():
        ET.SubElement(one, f"{namespace}{key}").text = value
    ET.register_namespace("", NAMESPACE)
    with os.fdopen(new_file(target), "wb") as writing:
        tree.write(writing, encoding="utf-8", xml_declaration=True)
    return ["-s", str(target)]


def _read(settings: Path) -> ET.ElementTree[ET.Element]:
    if not settings.exists():
        return ET.ElementTree(ET.Element(f"{{{NAMESPACE}}}settings"))
    try:
        return ET.parse(settings)  # noqa: S314
    except ET.ParseError as problem:
        raise ProxyUnusable(f"{settings} cannot be read: {problem}") from None


def _described(proxy: SplitResult) -> dict[str, str]:
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    values = {"id": "environment", "active": "true", "protocol": "https", "host": proxy.hostname, "port": str(port)}
    values |= {"username": proxy.username, "password": proxy.password}
    return {**{key: unquote(value) for key, value in values.items() if value}, "nonProxyHosts": not_proxied()}
