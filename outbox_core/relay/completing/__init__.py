"""Completing: what an outcome means for its row, and the write that puts it on record."""
