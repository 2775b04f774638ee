"""Checks that every link leads to a page that is there."""

import re
import sys
from pathlib import Path

folder = Path(sys.argv[1])
dead = [
    f"{page.name}: {target}"
    for page in folder.glob("*.html")
    for target in re.findall(r'href="([^"]+)"', page.read_text())
    if not (folder / target).exists()
]
sys.exit("\n".join(dead) if dead else 0)
