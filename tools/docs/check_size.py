#!/usr/bin/env python3
"""Names the given files that are larger than 200 KiB, which a repository of sources does not hold."""

import os
import sys

LIMIT = 200 << 10

if __name__ == "__main__":
    large = [f for f in sys.argv[1:] if os.path.isfile(f) and os.path.getsize(f) > LIMIT]
    for file in large:
        print(f"{file}: {os.path.getsize(file) >> 10} KiB, more than {LIMIT >> 10}")
    sys.exit(1 if large else 0)
