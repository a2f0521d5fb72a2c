"""The app's configuration: when Django is ready, tracked models are connected and the checks are registered."""

from django.apps import AppConfig, apps


class OutboxConfig(AppConfig):
    name = "outbox.django"
    label = "outbox"
    verbose_name = "Outbox"

    def ready(self) -> None:
        """Imported late: models are loaded only now."""
        from outbox.django import checks, signals  # noqa: PLC0415

        checks.register()
        signals.connect(apps.get_models())
