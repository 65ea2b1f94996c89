"""``python -m outbox_core.cli`` is ``outbox``."""

from outbox_core.cli import main

if __name__ == "__main__":
    main()
