"""The product, broken in known ways: each must be noticed by the tests that are said to notice it.

Each entry of `tests.mutations.catalogue` replaces one piece of text by another that breaks one promise and leaves
everything else at work. ``python -m tests.mutations`` breaks a copy of the tree, one entry after the other, runs the
tests that the entry names and expects every one of them to fail.
"""
