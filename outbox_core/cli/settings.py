"""Every setting as an option: what is given on the command line wins over the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from outbox_core.cli.parameters import TABLE, ParamType
from outbox_core.config import VARIABLES, LogSettings, Settings, Variable
from outbox_core.config.kinds import (
    Choice,
    DatabaseAddress,
    Destination,
    Duration,
    Refused,
    Tables,
    Truth,
    Whole,
)
from outbox_core.errors import InvalidSettings

if TYPE_CHECKING:
    from outbox_core.table import TableName

F = TypeVar("F", bound=Callable[..., Any])


_NAMES: Final[dict[type, str]] = {
    DatabaseAddress: "url",
    Destination: "url",
    Duration: "duration",
    Whole: "number",
}


class SettingType(ParamType[str]):
    """A setting as the environment has it: checked here, and kept as text."""

    def __init__(self, variable: Variable) -> None:
        self.name = _NAMES.get(type(variable.kind), "text")
        self._kind = variable.kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        try:
            self._kind.parse(text)
        except ValueError as error:
            more = f" ({error})" if isinstance(error, Refused) else ""
            self.fail(f"expected {self._kind.accepted}, got {self._kind.show(text)}{more}", param, ctx)
        return text


def setting_options(command: F) -> F:
    """Give a command an option for every setting; its parameters are called as the variables, in lower case."""
    for variable in reversed(VARIABLES):
        command = _option(variable)(command)
    return command


def read_settings(environ: Mapping[str, str], given: Mapping[str, Any]) -> Settings:
    """The settings of the environment with the options that were given in their place."""
    merged = dict(environ)
    for variable in VARIABLES:
        value = given.get(variable.name.lower())
        if value is not None and value != ():
            merged[variable.name] = value if isinstance(value, str) else variable.kind.write(value)
    return Settings.from_env(merged)


def read_log_settings(environ: Mapping[str, str], given: Mapping[str, Any]) -> LogSettings:
    """How to log, before anything that may want to; what is wrong with it is left to `read_settings` to say."""
    names = {variable.name for variable in VARIABLES if variable.place.startswith("logs.")}
    own = {name: value for name, value in environ.items() if name in names}
    try:
        return read_settings(own, {name.lower(): given.get(name.lower()) for name in names}).logs
    except InvalidSettings:
        return LogSettings()


def _option(variable: Variable) -> Callable[[F], F]:
    declared: list[str] = [variable.option, variable.name.lower()]
    if variable.option == "--table":
        declared.insert(1, "-t")
    if variable.option == "--database":
        declared.insert(1, "-d")
    text = f"{variable.meaning}  [{_origin(variable)}]"
    if isinstance(variable.kind, Truth):
        return click.option(*declared, default=None, help=text)
    if isinstance(variable.kind, Tables):
        return click.option(*declared, type=TABLE, multiple=True, help=f"{text[:-1]}; repeatable]")
    if isinstance(variable.kind, Choice):
        return click.option(*declared, type=click.Choice(variable.kind.words), help=text)
    return click.option(*declared, type=SettingType(variable), help=text)


def _origin(variable: Variable) -> str:
    default = Settings().as_env().get(variable.name, "")
    return f"env var: {variable.name}" + (f"; default: {default}" if default else "")


def tables_of(settings: Settings) -> tuple[TableName, ...]:
    """The tables to be delivered, of which there must be some."""
    if not settings.relay_tables:
        raise click.UsageError("name a table with --table, or several in OUTBOX_RELAY_TABLES")
    return settings.relay_tables
