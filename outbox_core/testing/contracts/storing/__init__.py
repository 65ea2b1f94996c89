"""The parts of the stores' suite."""
