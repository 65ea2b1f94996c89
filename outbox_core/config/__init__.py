"""Settings from the environment.

    settings = Settings.from_env()
    relay = settings.make_relay()

`docs/reference/settings.md` lists every variable.
"""

from outbox_core.config.kinds import masked_database_url
from outbox_core.config.settings import (
    LogSettings,
    MetricsSettings,
    Problem,
    Settings,
    UnknownVariable,
    unknown_variables,
)
from outbox_core.config.variables import VARIABLES, Variable
from outbox_core.durations import format_duration, parse_duration

__all__ = [
    "VARIABLES",
    "LogSettings",
    "MetricsSettings",
    "Problem",
    "Settings",
    "UnknownVariable",
    "Variable",
    "format_duration",
    "masked_database_url",
    "parse_duration",
    "unknown_variables",
]
