"""Starts one daemon: its health pages first, then all the rest. Joins no parts (see daemon)."""

from outbox.config import Settings
from outbox.daemon.shutdown import Stop
from outbox.daemon.systemd import Notifier, Watchdog
from outbox.telemetry.beats import Beats, loop_limits
from outbox.web import health as health_pages


def run_daemon(settings: Settings, *, once: bool = False, patient: bool = True, stop: Stop | None = None) -> bool:
    """`outbox run`: True when it drained cleanly. Errors of the family leave with their own exit code."""
    if stop is None:
        stop = Stop()
        stop.install()
    shown = health_pages.HealthState(Beats(loop_limits(settings)))
    # Forgotten when the lanes run: a start that hangs before that fails /healthz like any loop that hangs.
    shown.beats.beat("start")
    pages = health_pages.start(settings.http.metrics_host, settings.http.metrics_port, settings.http.port, shown)
    watchdog = Watchdog(Notifier(), shown.alive, shown.line)
    watchdog.start()  # READY: a host whose database is down boots
    try:
        # Drivers, metrics and logs are 0.6 s of CPU, twice what comes before: a probe is answered meanwhile.
        from outbox.app.daemon import project  # noqa: PLC0415

        # Asked to stop meanwhile: pools that have just begun to connect take seconds to close.
        return stop.is_set() or project(settings, shown, stop, once=once, patient=patient)
    finally:
        watchdog.stop()
        health_pages.stop(pages)
