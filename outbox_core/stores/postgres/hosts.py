"""Several hosts in one database URL: which of them is asked first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_PORT: Final = re.compile(r"[0-9]{1,5}")


class Hosts:
    """The driver asks hosts one after another and has one time for all of them: one that is silent, because its machine
    is lost or stands still, would use it up each time. Who did not answer is asked last from then on."""

    def __init__(self, dsn: str, arguments: Mapping[str, Any]) -> None:
        self._hosts = [] if "host" in arguments or "port" in arguments else _several(dsn)

    @property
    def first(self) -> tuple[str, str] | None:
        """Who is asked first, where there are several."""
        return self._hosts[0] if self._hosts else None

    def arguments(self) -> dict[str, Any]:
        """Hosts for the driver: none, unless there are several."""
        if not self._hosts:
            return {}
        names, ports = zip(*self._hosts, strict=True)
        return {"host": list(names), "port": [int(port) for port in ports]}

    def was_silent(self, asked: tuple[str, str] | None) -> None:
        """No answer came in time when this host was asked first. Others may have found that out, too."""
        if asked is not None and asked == self.first:
            self._hosts.append(self._hosts.pop(0))


def _several(dsn: str) -> list[tuple[str, str]]:
    """The hosts of a URL that has more than one. What is unusual is left to the driver: it knows what it means, or says
    what is wrong."""
    try:
        hosts = urlsplit(dsn).netloc.rpartition("@")[2]
    except ValueError:
        return []
    parted = [host.partition(":") for host in hosts.split(",")]
    usual = all(name and _PORT.fullmatch(port) for name, _, port in parted)
    return [(unquote(name), port) for name, _, port in parted] if len(parted) > 1 and usual else []
