"""The suites that say what an implementation of a contract must do, for whoever writes one.

`outbox_core.testing.contracts.dispatcher` has the suite of dispatchers. A suite is a class with asynchronous ``test_``
methods: subclass it in a test module and give it the fixture it asks for. It needs a runner of asynchronous tests, such
as pytest with pytest-asyncio, and imports none.
"""
