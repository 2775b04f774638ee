"""Compares what commands printed with what a page shows: `compare_output.py PRINTED SHOWN`.

Every line of SHOWN must be in PRINTED, in this order; further lines may be between them. `...` in a line is any text.
"""

import re
import sys
from pathlib import Path


def main() -> int:
    printed = [line.rstrip() for line in Path(sys.argv[1]).read_text().splitlines()]
    position = 0
    for line in Path(sys.argv[2]).read_text().splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("...")))
        if not line.strip():
            continue
        while position < len(printed) and not pattern.fullmatch(printed[position]):
            position += 1
        if position == len(printed):
            print(f"the page shows {line!r}, which was not printed:", *printed, sep="\n", file=sys.stderr)
            return 1
        position += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
