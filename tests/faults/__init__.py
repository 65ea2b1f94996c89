"""The whole under load while something breaks every few seconds, and a count of what became of every message.

    plan              what a run is made of: seed, broker, seconds, settings of relays
    world             servers, proxies and processes of one run, and how it is brought to a quiet end
    writer_process    transactions with unique values per key, and a history of what was tried and what came of it
    relay_process     a real relay; it may be told to die at a named moment
    consumer_process  what is read from the broker while it happens
    brokers           a place to publish to and to read back from, for each broker
    kinds             one function for each kind of fault: break, see that it was hit, heal
    nemesis           which fault comes when, from a seed
    classify          what became of every message, and whether a late write was accepted
    matrix            the rows of the fault matrix and where each is proven
    report            the same for people: a table, a timeline, a plot

`python -m tests.faults` runs it and ends with one line of JSON.
"""
