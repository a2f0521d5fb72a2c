"""Describes an embedded OpenSearch: its command and Java's options. `search.py` runs it.

It has no security: that is a plugin, which its distribution on Maven Central lacks.
"""

from __future__ import annotations

import signal

from outbox.embedded.process import Command
from outbox.embedded.products import OPENSEARCH
from outbox.embedded.search_server import EmbeddedSearch

# What its own launcher adds to every start, without the options that only save memory or time in production.
ALWAYS = (
    "-Xss1m",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Djna.nosys=true",
    "-XX:-OmitStackTraceInFastThrow",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.noKeySetOptimization=true",
    "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Djava.locale.providers=SPI,CLDR",
)


class EmbeddedOpenSearch(EmbeddedSearch):
    product = OPENSEARCH
    title = OPENSEARCH.title
    user = "admin"
    # 24 s for 2.19 and 40 s for 3.6 on two idle cores; 130 s for 3.6 beside fifteen other processes.
    ready_seconds = 300.0

    def _own_settings(self) -> dict[str, object]:
        return {}

    def _command(self) -> Command:
        """Java itself instead of the launcher in `bin/`, which needs bash and starts a Java more."""
        distribution, java = self._found
        home = distribution.home
        # What limits its permissions: a part of Java until 23, an agent since OpenSearch 3.
        agent = f"-javaagent:{home}/agent/opensearch-agent.jar"
        guard = "-Djava.security.manager=allow" if distribution.major == 2 else agent
        argv = [
            java.program,
            *self._java_options(self.heap),
            *ALWAYS,
            guard,
            f"-Dopensearch.path.home={home}",
            f"-Dopensearch.path.conf={self._config}",
            "-Dopensearch.distribution.type=tar",
            "-Dopensearch.bundled_jdk=false",
            "-cp",
            f"{home}/lib/*",
            "org.opensearch.bootstrap.OpenSearch",
        ]
        env = {**java.env, "OPENSEARCH_TMPDIR": str(self.folder / "tmp"), "HOSTNAME": "embedded"}
        return Command(argv, home, env, signal.SIGTERM)
