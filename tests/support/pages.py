"""Converts pages of the documentation to scripts that follow the page literally.

Blocks of `sh` are commands of the script. A block of another language becomes a file, if the text before it ends with
the name of a file in backticks and a colon; otherwise it is ignored.
"""

import re

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.\w+)`(?=[^`]*:\s*\Z)")


def script_of(page: str) -> str:
    """A bash script with the commands and files of the page, in their order."""
    parts, end = [], 0
    for block in _BLOCK.finditer(page):
        language, text = block.groups()
        file_name = _FILE.search(page[end : block.start()])
        end = block.end()
        if language == "sh":
            parts.append(text)
        elif file_name is not None:
            parts.append(f"cat > {file_name[1]} <<'END OF FILE'\n{text}END OF FILE\n")
    return "".join(parts)
