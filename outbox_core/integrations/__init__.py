"""The outbox inside web applications: one module for each framework, and what they share.

`app_relays` has the relays of an application's process, `bound` the outbox of a request's transaction. Nothing here is
imported by `outbox_core` itself, and each framework's module needs that framework alone.
"""
