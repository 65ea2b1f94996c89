"""Keep the loggers of brokers' clients from printing the content of messages."""

from __future__ import annotations

import logging


def cap_at_info(*names: str) -> None:
    """Drop the DEBUG records of these loggers from now on, in the whole process, at any level they are set to.

    For loggers of client libraries that print keys, payloads or frames at DEBUG. To undo it, call
    ``logger.removeFilter(not_debug)``.
    """
    for name in names:
        logging.getLogger(name).addFilter(not_debug)  # adding it again changes nothing


def not_debug(record: logging.LogRecord) -> bool:
    """The filter that `cap_at_info` adds: it drops DEBUG and below."""
    return record.levelno > logging.DEBUG
