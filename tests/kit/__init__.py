"""What tests of every level share: waiting, gates, settings, brokers, observers, stores, deliveries and tuning.

Nothing here needs a server. A test reaches the engine's classes and constants through this package, so that a renamed
class or a moved constant changes one file.
"""
