"""Values as a person can read them in an error's message."""

from __future__ import annotations

_SHOWN_CHARACTERS = 80


def shown(value: object) -> str:
    """The value as a person can read it in a message: quoted, escaped and never longer than a line."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r}… ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def invalid(what: str, value: object) -> str:
    """What is invalid, with its text; of a value of another type the rule names the type, and that is enough."""
    return f"invalid {what} {shown(value)}" if isinstance(value, str) else f"invalid {what}"


def shortened(path: str) -> str:
    """A path as one line, with its middle left out when it is long: where it begins and where it ends helps."""
    if len(path) > 2 * _SHOWN_CHARACTERS:
        path = f"{path[:_SHOWN_CHARACTERS]}…{path[-_SHOWN_CHARACTERS:]}"
    # The names of members in it are whoever's wrote the payload.
    return path if path.isprintable() else repr(path)[1:-1]
