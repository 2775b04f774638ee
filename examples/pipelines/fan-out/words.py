"""Words of texts, in parts: split, count, merge, measure."""

import json
import re
import sys
from collections import Counter
from pathlib import Path


def show(counts):
    print(json.dumps(dict(sorted(counts.items()))))


match sys.argv[1:]:
    case ["split", source, target, part, parts]:
        lines = [line for text in sorted(Path(source).glob("*.txt")) for line in text.open()]
        Path(target).mkdir()
        Path(target, f"{part}.txt").write_text("".join(lines[int(part) - 1 :: int(parts)]))
    case ["count", text]:
        show(Counter(re.findall(r"\w+", Path(text).read_text().lower())))
    case ["merge", *parts]:
        show(sum((Counter(json.loads(Path(part).read_text())) for part in parts), Counter()))
    case ["lines", text]:
        print(len(Path(text).read_text().splitlines()))
    case ["letters", text]:
        print(sum(map(str.isalpha, Path(text).read_text())))
    case ["sum"]:
        print(sum(map(int, sys.stdin.read().split())))
    case _:
        sys.exit(__doc__)
