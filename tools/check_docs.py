"""Check that no line of the documentation is wider than 120 columns, and that tests execute the blocks of the tutorial
and of every how-to, except those that say why not."""

import subprocess
import sys
from pathlib import Path

WIDTH = 120
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.pages import problems_of_pages  # noqa: E402 - the root of the repository must be on the path first


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wide = [
        f"{name}:{number}: {len(line)} columns, at most {WIDTH} are allowed"
        for name in listed.split()
        if (ROOT / name).is_file()
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if len(line) > WIDTH
    ]
    problems = [*wide[:50], *problems_of_pages(ROOT)]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
