"""Owns handing a proxy of the environment to Maven, which does not read these variables; it connects to nothing.

The address may hold a password: it goes into a file that only the caller can read, never into arguments or logs.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

NAMESPACE = "http://maven.apache.org/SETTINGS/1.0.0"


def proxy_of_environment() -> SplitResult | None:
    """What HTTPS_PROXY names, else ALL_PROXY; None for a kind that Maven cannot use."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        if given := os.environ.get(name):
            found = urlsplit(given if "://" in given else f"http://{given}")
            return found if found.hostname and found.scheme in ("http", "https") else None
    return None


def not_proxied() -> str:
    """NO_PROXY in Maven's form: names divided by bars, a star for any beginning."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    return "|".join(["localhost", "127.*", *(f"*{host}" if host.startswith(".") else host for host in hosts)])


def maven_settings(user_settings: Path, target: Path) -> list[str]:
    """Options that make Maven use the proxy; none without one, or where the user's own settings name a proxy."""
    proxy = proxy_of_environment()
    if proxy is None:
        return []
    tree = ET.parse(user_settings) if user_settings.exists() else ET.ElementTree(ET.Element(_tag("settings")))  # noqa: S314
    root = tree.getroot()
    if root is None or any(element.tag.endswith("}proxy") or element.tag == "proxy" for element in root.iter()):
        return []
    root.append(_proxies(proxy, root.tag.startswith("{")))
    ET.register_namespace("", NAMESPACE)
    target.unlink(missing_ok=True)
    target.touch(mode=0o600)
    tree.write(target, encoding="utf-8", xml_declaration=True)
    return ["-s", str(target)]


def _tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def _proxies(proxy: SplitResult, qualified: bool) -> ET.Element:
    name = _tag if qualified else str
    proxies = ET.Element(name("proxies"))
    one = ET.SubElement(proxies, name("proxy"))
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    values = {"id": "environment", "active": "true", "protocol": "https", "host": proxy.hostname, "port": str(port)}
    values |= {"username": proxy.username, "password": proxy.password}
    for key, value in values.items():
        if value:
            ET.SubElement(one, name(key)).text = unquote(value)
    ET.SubElement(one, name("nonProxyHosts")).text = not_proxied()
    return proxies
