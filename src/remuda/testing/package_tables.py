"""The reference page of the standard packages, made from their definitions: `python -m remuda.testing.package_tables`.

A test compares the page with what this makes, so that neither a new input nor a changed default is forgotten.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from remuda.steps.language.reading import read_step
from remuda.steps.language.values import MISSING, Parameter

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "standard-step-packages.md"
FOLDERS = sorted(file.parent for file in (ROOT / "src" / "remuda" / "stdsteps").glob("*/func.yml"))
_HEAD = """# Packages of the standard steps

Inputs and outputs of every package that comes with the agent, from their definitions
(`src/remuda/stdsteps/*/func.yml`). What the steps do is described in [standard steps](standard-steps.md).
An input without a default is needed; *sensitive* ones are masked in logs and results.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(folder) for folder in FOLDERS)])


def _section(folder: Path) -> str:
    text = (folder / "func.yml").read_text()
    spec = read_step(text, file=f"{folder.name}/func.yml").spec
    about = text.partition("\n")[0].removeprefix("#").strip()
    lines = [f"## {folder.name} {spec.version}", "", about, ""]
    lines += ["| input | type | default | meaning |", "|---|---|---|---|", *_rows(spec.inputs, has_default=True)]
    if spec.outputs:
        lines += ["", "| output | type | meaning |", "|---|---|---|", *_rows(spec.outputs, has_default=False)]
    return "\n".join([*lines, ""])


def _rows(parameters: Mapping[str, Parameter], *, has_default: bool) -> Iterable[str]:
    for name, one in parameters.items():
        default = "" if one.default is MISSING else f"`{json.dumps(one.default)}`"
        about = one.description.replace("|", "\\|").strip() + (" *Sensitive.*" if one.sensitive else "")
        cells = [f"`{name}`", one.type.value, *([default] if has_default else []), about]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
