"""The suite every dispatcher passes against its real broker.

    @pytest.mark.asyncio
    class TestPulsar(DispatcherContract):
        capabilities = Capabilities(max_bytes=5_000_000)

        @pytest.fixture
        def broker(self) -> Broker:
            return PulsarBroker(...)

`Broker` says what to provide. The tests that freeze and kill the broker are also there on their own, as
`OutageContract`, for those who want them on another server than `ServiceContract`, which is all the rest.
"""

from __future__ import annotations

from outbox_core.testing.contracts.broker import Broker, Capabilities
from outbox_core.testing.contracts.dispatching.delivery import DeliveryContract
from outbox_core.testing.contracts.dispatching.lifecycle import LifecycleContract
from outbox_core.testing.contracts.dispatching.outages import OutageContract
from outbox_core.testing.contracts.dispatching.secrecy import SecrecyContract
from outbox_core.testing.contracts.dispatching.windows import WindowContract

__all__ = ["Broker", "Capabilities", "DispatcherContract", "OutageContract", "ServiceContract"]


class ServiceContract(DeliveryContract, WindowContract, LifecycleContract, SecrecyContract):
    """What a dispatcher does while its broker works."""


class DispatcherContract(ServiceContract, OutageContract):
    """Everything a dispatcher does."""
