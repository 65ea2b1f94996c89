from __future__ import annotations

import sys

from benchmarks import common
from benchmarks.peers import beside

if __name__ == "__main__":
    sys.exit(common.main(beside.__doc__, beside.run))
