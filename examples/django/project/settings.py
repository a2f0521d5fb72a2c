"""Settings for a try on one machine: no pages, no sessions, one database."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for a try on this machine")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["outbox.django", "blog"]
ROOT_URLCONF = "project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TEST_RUNNER = "outbox.django.runner.OutboxRunner"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["DATABASE_NAME"],
        "USER": os.environ.get("DATABASE_USER", ""),
        "PASSWORD": os.environ.get("DATABASE_PASSWORD", ""),
        "HOST": os.environ.get("DATABASE_HOST", ""),
        "PORT": os.environ.get("DATABASE_PORT", ""),
    }
}
OUTBOX = {
    "ELASTIC_URL": os.environ.get("ELASTIC_URL", "http://localhost:9200"),
    "ELASTIC_INDEX": os.environ.get("ELASTIC_INDEX", "blog"),
}
