"""Claiming: when to claim, from where, how much, and what to do with a claim that went wrong."""
