"""The parts of the dispatchers' suite."""
