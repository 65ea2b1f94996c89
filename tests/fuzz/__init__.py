"""Every parser of the library against hostile input.

What is given is either read, and then valid, or refused by the library's own precise error: never another exception,
never a hang, never a secret in the text. `pytest tests/fuzz --hypothesis-profile=fuzz-long` looks for long.
"""
