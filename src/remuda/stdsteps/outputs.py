"""What a standard step tells about its work as data: lines of `{"name": ..., "value": ...}` for the step's result.

The file that REMUDA_OUTPUTS names is the step runner's; without one nothing is told. The last value of a name wins.
"""

import json
import os
from typing import Any


def tell(**values: Any) -> None:
    """Add outputs to the step's result."""
    path = os.environ.get("REMUDA_OUTPUTS")
    if path:
        lines = [json.dumps({"name": name, "value": value}) + "\n" for name, value in values.items()]
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(lines))
