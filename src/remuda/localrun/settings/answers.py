"""Asks the user on the terminal for permissions that no option and no settings file gives, and remembers answers in the
user's settings file. They are not stored in the file of the repository: a commit would hand them to everybody, and that
file must not give permissions. Without a terminal nothing is asked."""

import os
import sys
from pathlib import Path

from remuda.lib.exits import BadInputError
from remuda.lib.files import wait_for_file_lock, write_whole
from remuda.localrun.settings.places import user_file

_given: set[tuple[str, str]] = set()
"""Keys and values that the user permitted for the time of this process, also for later runs of `--watch`."""


def can_ask() -> bool:
    """True if a user can see a question and answer it."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def is_permitted(question: str, key: str, value: str) -> bool:
    """Ask the question, unless the same was permitted before in this process. For the answer `always`, add the value to
    the list `key` in the user's settings file. False if the user says no, or cannot be asked."""
    if (key, value) in _given:
        return True
    if not can_ask():
        return False
    answer = _ask(f"{question} [y/N/always] ").lower()
    if answer not in ("y", "yes", "a", "always"):
        return False
    _given.add((key, value))
    if answer in ("a", "always"):
        remember(key, value)
    return True


def confirm(question: str) -> bool:
    return can_ask() and _ask(f"{question} [y/N] ").lower() in ("y", "yes")


def _ask(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        # Ctrl-D leaves the cursor behind the question.
        print(file=sys.stderr)
    return line.strip()


def remember(key: str, value: str) -> None:
    """Set a key in the user's settings file, or add the value if it is a list; print what was written where. The rest
    of the file stays as it is. Raises BadInputError if the file cannot be changed."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    from remuda.localrun.settings.keys import all_keys

    file = Path(os.path.realpath(user_file()))
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with wait_for_file_lock(file.with_name(f".{file.name}.lock")):
            document = tomlkit.parse(file.read_text() if file.exists() else "")
            if not all_keys()[key].is_list:
                document[key] = value
            elif value not in (values := list(document.get(key, []))):
                document[key] = [*values, value]
            write_whole(file, tomlkit.dumps(document).encode(), durable=True)
    except (OSError, UnicodeDecodeError, TOMLKitError, TypeError) as error:
        raise BadInputError(f"{file}: the answer cannot be stored: {error}; correct the file, or answer y") from None
    print(f'remuda: stored in {file}: {key} "{value}"', file=sys.stderr)
