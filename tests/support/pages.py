"""Pages of the documentation as scripts: what somebody does who follows a page literally.

Blocks of `sh` are run as they stand. A block of any other language is written to the file that the text before it names
last, in backticks; one before which no file is named is there to be read.
"""

import re

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+\.\w+)`(?=[^`]*:\s*\Z)")


def script_of(page: str) -> str:
    """For bash, in the order of the page."""
    parts, end = [], 0
    for block in _BLOCK.finditer(page):
        language, text = block.groups()
        named = _FILE.search(page[end : block.start()])
        end = block.end()
        if language == "sh":
            parts.append(text)
        elif named is not None:
            parts.append(f"cat > {named[1]} <<'END OF FILE'\n{text}END OF FILE\n")
    return "".join(parts)
