"""Database URLs without their secrets, for messages and logs."""

from __future__ import annotations

from urllib.parse import urlsplit

from outbox_core.stores import flaw


def masked_database_url(url: str) -> str:
    """The scheme, user, hosts and database of a URL; the password and the values of options are left out.

    What cannot be read as a database URL comes back as ``***``: a mistyped one shows its password in unexpected
    places.
    """
    if flaw(url) is not None:
        return "***"
    parts = urlsplit(url)
    if "@" in parts.path + parts.query or parts.fragment:
        return "***"
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user}:***@" if colon else f"{user}{at}"
    options = "&".join(f"{pair.partition('=')[0]}=***" for pair in parts.query.split("&") if pair)
    return f"{parts.scheme}://{shown}{hosts}{parts.path}{'?' if options else ''}{options}"
