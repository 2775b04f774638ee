"""Files of a new plugin in Python or Go, made from templates (`remuda plugin new`). The plugin runs without changes."""

import re
from importlib.resources import files as resources

from remuda.fleeting.plugin_search import PREFIX
from remuda.lib.dataclass import dataclass

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 40
_FILES = {
    "python": {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        "gitignore": ".gitignore",
        "program": "@PROGRAM@",
        "init.py": "src/@PACKAGE@/__init__.py",
        "main.py": "src/@PACKAGE@/main.py",
        "plugin.py": "src/@PACKAGE@/plugin.py",
        "provider.py": "src/@PACKAGE@/provider.py",
        "test_plugin.py": "tests/test_plugin.py",
    },
    "go": {
        "go.mod": "go.mod",
        "README.md": "README.md",
        "gitignore": ".gitignore",
        "main.go": "main.go",
        "plugin.go": "plugin.go",
        "provider.go": "provider.go",
        "plugin_test.go": "plugin_test.go",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    path: str
    text: str
    is_program: bool


def is_name(name: str) -> bool:
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def files(name: str, language: str, *, python: str = "/usr/bin/env python3") -> list[File]:
    """All files of a new plugin. `language`: python or go; `python`: interpreter in the first line of its program."""
    words = {
        "@NAME@": name,
        "@PROGRAM@": f"{PREFIX}{name}",
        "@PACKAGE@": f"{PREFIX}{name}".replace("-", "_"),
        "@CLASS@": "".join(part.capitalize() for part in name.split("-")) + "Group",
        "@PYTHON@": python,
    }

    def fill(text: str) -> str:
        for mark, word in words.items():
            text = text.replace(mark, word)
        return text

    folder = resources(__name__) / language
    return [
        File(
            path=fill(path), text=fill((folder / f"{template}.template").read_text()), is_program=template == "program"
        )
        for template, path in _FILES[language].items()
    ]
