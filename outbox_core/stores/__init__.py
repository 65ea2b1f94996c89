"""The stores of messages, one folder each. `for_url` picks the store of a database URL.

`outbox_core.store` is the contract relays work on, `outbox_core.store_backend` the contract of all else a store gives.
"""

from outbox_core.stores.registry import flaw, for_url

__all__ = ["flaw", "for_url"]
