"""The whole under load while something breaks every few seconds, and a count of what became of every message.

    plan              what a run is made of: seed, broker, seconds, settings of relays
    world             servers, proxies and processes of one run, and how it is brought to a quiet end
    writer_process    transactions with unique values per key, and a history of what was tried and what came of it
    relay_process     a real relay; it may be told to die, freeze or block at a named moment
    moments           those moments, and what happens at one of them
    relay_record      the steps relays ask of the database and hand to the broker, by their own record
    consumer_process  what is read from the broker while it happens
    roles             the database role of each process, with the grants that the library prints
    brokers           a place to publish to, for each broker
    readers, groups   reading back from it, by one's own count or by the broker's
    content           what a message says, as its writer wrote it and as somebody read it
    kinds             one function for each kind of fault: break, see that it was hit, heal
    nemesis           which fault comes when, from a seed
    aims              how often a fault is to be felt in a run, and what is lacking of that
    classify          what became of every message
    trail             whether a write was accepted under a lease that was not its own
    repeats           whether a message was sent more than once without a fault that explains it
    matrix            the rows of the fault matrix and where each is proven
    stops             how long relays took to stop
    trial             one run from its first message to its verdict
    soak              what grows while nothing is broken
    plans             which runs there are in the short form, the long form and a soak
    suites, counts    what the long form has to reach besides, and whether it did
    report, plot      what it came to for people: tables, a timeline, a picture
    summary, page     and for machines: JSON, from which the documentation's page is written
    mutants           the product broken on purpose, which a run must find out

`python -m tests.faults` runs it and ends with one line of JSON.
"""
