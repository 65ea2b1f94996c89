from __future__ import annotations

import sys

from benchmarks import running
from benchmarks.peers import beside

if __name__ == "__main__":
    sys.exit(running.main(beside.__doc__, "peers"))
