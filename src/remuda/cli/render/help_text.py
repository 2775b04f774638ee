"""Turns the docstring of a command into its help text. A separate module, because only --help needs it. Pure."""

import inspect
import re
import textwrap

_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_CONTINUATION = re.compile(r"\s*\\\n\s*")
_INDENT = "    "


def format_help(docstring: str, columns: int) -> str:
    """Join the lines of each paragraph, so that the help wraps at the width of the terminal. Indented paragraphs, which
    are examples, keep their lines; a command that is too long for `columns` continues on more lines after a backslash,
    so that it can be copied."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(
        _format_examples(each, columns) if each.startswith(" ") else " ".join(each.splitlines()) for each in paragraphs
    )


def _format_examples(paragraph: str, columns: int) -> str:
    lines = _CONTINUATION.sub(" ", paragraph).splitlines()
    return "\n".join(part for line in lines for part in _split_command(line, columns))


def _split_command(line: str, columns: int) -> list[str]:
    """Split an example at words into lines that end with a backslash and have at most `columns` characters, if no word
    is longer. A comment that does not fit behind its command gets lines before it."""
    if len(line) <= columns:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    command, mark, comment = line.partition(" # ")
    comments = textwrap.wrap(comment, columns, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    lines, current = [], ""
    words = _join_options(_WORD.findall(command))
    for number, word in enumerate(words):
        room = columns if number == len(words) - 1 else columns - len(" \\")
        if current and len(f"{current} {word}") > room:
            lines.append(f"{current} \\")
            current = f"{indent}{_INDENT}{word}"
        else:
            current = f"{current} {word}" if current else f"{indent}{word}"
    return [*(comments if mark else []), *lines, current]


def _join_options(words: list[str]) -> list[str]:
    """Join each option, and each sign of the shell such as `>`, with the word after it."""
    joined: list[str] = []
    for word in words:
        previous = joined[-1] if joined else ""
        is_open = " " not in previous and (previous.startswith("-") or previous in (">", "|", "&&"))
        if is_open and not word.startswith("-"):
            joined[-1] = f"{previous} {word}"
        else:
            joined.append(word)
    return joined
