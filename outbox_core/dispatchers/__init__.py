"""Dispatchers that need no broker, and those that combine others."""
