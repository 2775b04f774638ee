"""Where in a `config.toml` a key stands: tomllib tells no positions, so the text is looked through once more.

`config.py` puts the line into its messages. The look is a simple one: it knows headers and keys at the beginning of a
line. What it does not find (a table written inline, say) has the line of its section, or none.
"""

import re

_HEADER = re.compile(r"\s*\[{1,2}\s*([A-Za-z0-9_.\"' -]+?)\s*\]{1,2}")
_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*[=.]")
_PLACE = re.compile(r"(?:runners\[(?P<runner>\d+)\]\.?)?(?P<key>[A-Za-z0-9_-]+)?")


def with_line(message: str, *, file: str, text: str) -> str:
    """`file: runners[0].key ...` as `file:LINE: runners[0].key ...`, if the line can be told."""
    start = f"{file}: "
    if not message.startswith(start):
        return message
    place = _PLACE.match(message, len(start))
    assert place is not None  # it may match nothing at all
    line = line_of(text, runner=int(place["runner"]) if place["runner"] else None, key=place["key"])
    return f"{file}:{line}: {message[len(start) :]}" if line else message


def line_of(text: str, *, runner: int | None, key: str | None) -> int | None:
    """The line of a key, of a runner or of the file itself; for a runner's key that is missing, that of its section."""
    number = -1
    section = ""
    found = None
    for at, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header is not None:
            section = re.sub(r"[\s\"']", "", header[1])
            number += section == "runners"
            is_own = number == runner if section.startswith("runners") else runner is None
            if is_own and section == "runners" and found is None:
                found = at
            elif is_own and key is not None and section.removeprefix("runners.").split(".")[0] == key:
                return at
            continue
        match = _KEY.match(line)
        is_there = section == "" if runner is None else section == "runners" and number == runner
        if is_there and match is not None and match[1] == key:
            return at
    return found
