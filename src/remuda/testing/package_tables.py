"""Generates the reference page of the standard steps that come with the agent, with their inputs and outputs.

Run it by `python -m remuda.testing.package_tables`. A test compares the page with the result, so that it cannot become
outdated."""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from remuda.steps.language.reading import read_step
from remuda.steps.language.values import MISSING, Parameter

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "standard-step-packages.md"
PACKAGES = ROOT / "src" / "remuda" / "stdsteps"
FOLDERS = sorted(file.parent for file in PACKAGES.glob("**/func.yml"))
WIDTH = 116
_HEAD = """# Packages of the standard steps

Inputs and outputs of every package that comes with the agent, generated from the definitions
(`func.yml` below `src/remuda/stdsteps`). [Standard steps](standard-steps.md) describes what the steps do.
An input without a default is required. *Sensitive* values are masked in logs and results.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(folder) for folder in FOLDERS)])


def _section(folder: Path) -> str:
    text = (folder / "func.yml").read_text()
    spec = read_step(text, file=f"{folder.name}/func.yml").spec
    about = text.partition("\n")[0].removeprefix("#").strip()
    lines = [
        f"## {folder.relative_to(PACKAGES)} {spec.version}",
        "",
        about,
        "",
        "### Inputs",
        "",
        *_entries(spec.inputs, has_default=True),
    ]
    if spec.outputs:
        lines += ["### Outputs", "", *_entries(spec.outputs, has_default=False)]
    return "\n".join(lines)


def _entries(parameters: Mapping[str, Parameter], *, has_default: bool) -> Iterable[str]:
    for name, parameter in parameters.items():
        is_shown = has_default and parameter.default is not MISSING
        default = f", default `{json.dumps(parameter.default)}`" if is_shown else ""
        about = parameter.description.strip() + (" *Sensitive.*" if parameter.sensitive else "")
        text = textwrap.fill(_escape(about), WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        yield f"`{name}` ({parameter.type.value}{default})\n:   {text}\n"


def _escape(text: str) -> str:
    return re.sub(r"(?<!\S)\*{1,2}(?=[\s.,])", r"`\g<0>`", text)


if __name__ == "__main__":
    PAGE.write_text(page())
