"""Makes numbers, adds up a share of them, adds up the shares: something for the jobs of the pipeline to do."""

import sys
from pathlib import Path


def main(command: str, *arguments: str) -> None:
    """`make COUNT`, `sum FILE PART PARTS` or `total FILE...`; the result goes to stdout."""
    if command == "make":
        result = "\n".join(str(number) for number in range(1, int(arguments[0]) + 1))
    elif command == "sum":
        numbers = Path(arguments[0]).read_text().split()
        part, parts = int(arguments[1]), int(arguments[2])
        result = str(sum(map(int, numbers[part - 1 :: parts])))
    else:
        result = str(sum(int(Path(name).read_text()) for name in arguments))
    sys.stdout.write(result + "\n")


main(*sys.argv[1:])
