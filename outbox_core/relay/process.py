"""The earlier name of `outbox_core.cli.process.tune_gc`."""

from outbox_core.cli.process import tune_gc as spare_the_collector

__all__ = ["spare_the_collector"]
