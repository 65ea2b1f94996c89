"""For the tests of applications and adapters: doubles that record and fail on demand, and suites for each contract."""
