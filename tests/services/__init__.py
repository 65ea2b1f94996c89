"""Real servers for the tests: found or provisioned, started, broken on purpose, and always cleaned up.

    process    one operating-system process and its descendants, by recorded identity
    watchdog   ends what a dead run left behind
    run        the folder, ports and processes of this run
    sources    the order in which a server is looked for, and what happens when there is none
    provision  the cache folder, Maven Central and apt
    server     the contract every server keeps; one module per server implements it
    session    shared and private servers of one test run

`python -m tests.services` starts each server once and prints where it came from.
"""
