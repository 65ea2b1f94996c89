"""What is wrong before any work begins: settings, names, URLs, plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from outbox_core.errors.quoting import invalid, shown
from outbox_core.errors.root import OutboxError


class ConfigError(OutboxError):
    """Raised when a setting, a name or an installation is wrong before any work begins."""

    code: ClassVar[str] = "CONFIG.INVALID"


class EmbeddedServerError(ConfigError):
    """Raised when a server from a wheel cannot be started here, or has ended by itself.

    ``server`` is its name and ``reason`` what keeps it from running, with the tail of its log where there is one.
    """

    code: ClassVar[str] = "CONFIG.EMBEDDED_SERVER"

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"the embedded {server} does not run: {reason}")
        self.server = server
        self.reason = reason


class InvalidTableName(ConfigError, ValueError):
    """Raised when a table name breaks the rules of `TableName`.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "CONFIG.TABLE_NAME"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"invalid table name {shown(value)}: {rule}")
        self.value = value
        self.rule = rule


class InvalidSettings(ConfigError, ValueError):
    """Raised when variables of the environment are wrong or missing; ``problems`` has a text for each of them.

    A text names the variable, its value (a URL without its secrets) and what is accepted.
    """

    code: ClassVar[str] = "CONFIG.SETTINGS"

    def __init__(self, problems: Sequence[str]) -> None:
        count = "a setting is" if len(problems) == 1 else f"{len(problems)} settings are"
        super().__init__(f"{count} wrong: {'; '.join(problems)}")
        self.problems = tuple(problems)


class InvalidUrl(ConfigError, ValueError):
    """Raised when a dispatcher URL cannot be read, or asks for something its adapter does not know.

    ``scheme`` is the URL's own when it could be read (otherwise empty) and ``rule`` what was broken. The rest of the
    URL is in neither the message nor an attribute, because a mistyped URL shows its password in unexpected places.
    """

    code: ClassVar[str] = "CONFIG.URL"

    def __init__(self, scheme: str, rule: str) -> None:
        shown = f" {scheme}://…" if scheme else ""
        super().__init__(f"invalid dispatcher URL{shown}: {rule}")
        self.scheme = scheme
        self.rule = rule


class InvalidTopicPattern(ConfigError, ValueError):
    """Raised when a topic pattern breaks the rules of `TopicPattern`.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "CONFIG.TOPIC_PATTERN"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{invalid('topic pattern', value)}: {rule}")
        self.value = value
        self.rule = rule


class MissingExtra(ConfigError, ImportError):
    """Raised when something needs a package that comes with an extra which is not installed.

    ``extra`` is the extra's name and ``command`` installs it.
    """

    code: ClassVar[str] = "CONFIG.MISSING_EXTRA"

    def __init__(self, feature: str, package: str, extra: str, command: str) -> None:
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. Install it with: {command}",
            name=package,
        )
        self.extra = extra
        self.command = command


class PlanMismatch(ConfigError):
    """Raised when a plan is given to another table than it was made for, or for another action than it was begun with.

    Nothing has been changed.
    """

    code: ClassVar[str] = "CONFIG.PLAN_MISMATCH"


class RetentionZero(ConfigError, ValueError):
    """Raised when a cleaner is told to keep messages for no time at all."""

    code: ClassVar[str] = "CONFIG.RETENTION_ZERO"

    def __init__(self, setting: str, value: float) -> None:
        hint = (
            'to keep no published message, let the relay delete them: on_published="delete"'
            if setting == "retention"
            else "to keep dead messages for ever, which is the default, set it to None"
        )
        super().__init__(f"{setting} must be greater than 0 seconds, got {value!r}; {hint}")
        self.setting = setting


class UnboundedFilter(ConfigError, ValueError):
    """Raised when messages would be changed by a filter without a single condition."""

    code: ClassVar[str] = "CONFIG.UNBOUNDED_FILTER"

    def __init__(self) -> None:
        super().__init__(
            "the filter has no condition, so every message would be changed; give a topic, tenant_id, since, until,"
            " code or event_ids, or insist with everything=True"
        )
