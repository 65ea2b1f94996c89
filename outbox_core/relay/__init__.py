"""The relay: it claims committed messages, dispatches them and records what became of each."""

from outbox_core.relay.relay import Relay

__all__ = ["Relay"]
