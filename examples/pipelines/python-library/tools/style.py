"""Complains about lines that are too long or end in blanks."""

import sys
from pathlib import Path

LIMIT = 100
wrong = [
    f"{path}:{number}: {'too long' if len(line) > LIMIT else 'blank at the end'}"
    for folder in sys.argv[1:]
    for path in sorted(Path(folder).rglob("*.py"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
    if len(line) > LIMIT or line != line.rstrip()
]
print("\n".join(wrong) or "clean")
sys.exit(1 if wrong else 0)
