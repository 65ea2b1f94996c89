"""Keeping the loggers of brokers' clients from printing what messages hold."""

from __future__ import annotations

import logging


def cap_at_info(*names: str) -> None:
    """Drop the DEBUG records of these loggers from now on, in the whole process, whatever level they are set to.

    For loggers of client libraries that print keys, payloads or frames at DEBUG. ``logger.removeFilter`` with the one
    filter of this module among ``logger.filters`` undoes it.
    """
    for name in names:
        logging.getLogger(name).addFilter(not_debug)  # adding it again changes nothing


def not_debug(record: logging.LogRecord) -> bool:
    """The filter `cap_at_info` adds: lets everything pass but DEBUG and below."""
    return record.levelno > logging.DEBUG
