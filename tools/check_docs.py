"""Check that no line of the documentation is wider than 120 columns."""

import subprocess
import sys
from pathlib import Path

WIDTH = 120
ROOT = Path(__file__).parents[1]


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wide = [
        f"{name}:{number}: {len(line)} columns, at most {WIDTH} are allowed"
        for name in listed.split()
        if (ROOT / name).is_file()
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if len(line) > WIDTH
    ]
    print("\n".join(wide[:50]), end="\n" if wide else "")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
