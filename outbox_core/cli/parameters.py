"""Kinds of values on the command line: each refuses what it cannot read with what it would accept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

import click

from outbox_core.cli.call import current
from outbox_core.config.kinds import masked_database_url
from outbox_core.durations import parse_duration
from outbox_core.errors import InvalidTableName
from outbox_core.errors.quoting import shown
from outbox_core.letters import MAX_RATE, MIN_RATE
from outbox_core.stores import flaw
from outbox_core.table import TableName

if TYPE_CHECKING:
    from click import ParamType as ParamType
else:

    class ParamType(click.ParamType):
        """Generic for type checkers; the class of click before 8.5 is not."""

        def __class_getitem__(cls, item: object) -> type[ParamType]:
            return cls


class TableType(ParamType[TableName]):
    """``name`` or ``schema.name``; several in a variable have commas between them."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TableName:
        try:
            return TableName.parse(value)
        except InvalidTableName as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        return [part.strip() for part in rv.split(",") if part.strip()]


class DatabaseType(ParamType[str]):
    """A PostgreSQL URL. What was given is never repeated: it holds a password."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        url = str(value)
        wrong = flaw(url)
        if wrong is not None:
            self.fail(wrong, param, ctx)
        note_database(url)
        return url


class DurationType(ParamType[float]):
    """``200ms``, ``1s``, ``1m``, ``168h``, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(f"{error}, got {shown(value)}", param, ctx)


class MomentType(ParamType[datetime]):
    """A moment in ISO 8601, in UTC unless it says otherwise, or a duration such as ``2h``: so long ago, or with
    ``ahead`` so long from now."""

    name = "time"

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        try:
            length = timedelta(seconds=parse_duration(text))
            return datetime.now(UTC) + (length if self._ahead else -length)
        except OverflowError:
            self._refuse(text, param, ctx)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self._refuse(text, param, ctx)

    def _refuse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        self.fail(
            f"expected a time such as 2026-01-31T08:00:00Z (UTC unless it has an offset), or how long"
            f" {'from now' if self._ahead else 'ago'} such as 2h, got {shown(text)}",
            param,
            ctx,
        )


class RateType(ParamType[float]):
    """Messages a second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            rate = float(value)
        except ValueError:
            rate = math.nan
        if not MIN_RATE <= rate <= MAX_RATE:
            self.fail(
                f"expected messages a second, {MIN_RATE:g} to {MAX_RATE:,}, got {shown(value)}", param, ctx
            )
        return rate


class UuidType(ParamType[UUID]):
    """A UUID."""

    name = "uuid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(str(value))
        except ValueError:
            self.fail(
                f"expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057, got {shown(value)}",
                param,
                ctx,
            )


def note_database(url: str | None) -> None:
    """Remember the database, without its secrets, for what is said when it fails."""
    if url is not None:
        current().database = masked_database_url(url)


TABLE: Final = TableType()
DATABASE: Final = DatabaseType()
DURATION: Final = DurationType()
MOMENT: Final = MomentType()
MOMENT_AHEAD: Final = MomentType(ahead=True)
RATE: Final = RateType()
UUID_VALUE: Final = UuidType()
