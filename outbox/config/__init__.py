"""Owns one frozen settings tree, read once, with all problems reported together. It does not act on a setting.

To add a setting: declare it in its section (`connections`, `streaming`, `work` or `service`; `settings` for the top
level), with what it means below it. Add a rule to `settings` if it depends on another setting. Then run `scripts/docs`.
"""

from outbox.config.connections import ElasticSettings as ElasticSettings
from outbox.config.load import load_settings as load_settings
from outbox.config.load import read_secret_file as read_secret_file
from outbox.config.settings import VARIABLES as VARIABLES
from outbox.config.settings import Settings as Settings
from outbox.config.streaming import ConnectSettings as ConnectSettings
from outbox.config.streaming import KafkaSettings as KafkaSettings
