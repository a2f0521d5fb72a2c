"""The app's configuration: when Django is ready, the checks are registered."""

from django.apps import AppConfig

from outbox.django import checks


class OutboxConfig(AppConfig):
    name = "outbox.django"
    label = "outbox"
    verbose_name = "Outbox"

    def ready(self) -> None:
        checks.register()
