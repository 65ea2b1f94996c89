"""Ordering: claimed rows by key, one at a time, lowest sequence first."""
