"""Parts that all long-running loops share: clock, backoff, pacing, mailboxes, shutdown, supervision, signals, wake-ups.

It knows no table, no row and no broker.
"""
