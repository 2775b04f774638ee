"""Finds the commands that were probably meant by one that does not exist. A separate module, because only a mistyped
command needs it. Pure."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

MOST = 4
SIMILAR = 0.6
SYNONYMS = {
    "ls": ("list",),
    "get": ("show", "get"),
    "describe": ("show",),
    "status": ("show", "status"),
    "logs": ("log",),
    "trace": ("log",),
    "rm": ("delete", "remove", "erase"),
    "remove": ("delete", "remove"),
    "delete": ("delete", "remove", "erase"),
    "stop": ("cancel", "pause"),
    "kill": ("cancel",),
    "rerun": ("retry",),
    "restart": ("retry",),
    "start": ("run", "play", "up"),
    "trigger": ("play", "run"),
    "add": ("create", "add"),
    "new": ("create", "new"),
    "edit": ("update", "set"),
    "change": ("update", "set"),
    "download": ("artifacts",),
    "signin": ("login",),
    "auth": ("login",),
    "secret": ("variable",),
    "env": ("variable",),
    "server": ("cell serve", "up"),
    "serve": ("cell serve", "up"),
    "help": (),
}
"""Words of other tools, and the words of Remuda that mean the same."""


def explain_unknown_command(arguments: Sequence[str], commands: Collection[str]) -> str:
    """Return the message for arguments that name no command. `commands`: the words of all commands and groups."""
    words = _command_words(arguments, commands)
    tried = " ".join(words)
    meant = suggest_commands(words, commands)
    group = " ".join(words[:-1])
    fix = f"remuda {group} --help lists the commands" if group in commands else "remuda --help lists the commands"
    if meant:
        fix = f"did you mean {_either([f'`remuda {each}`' for each in meant])}? {fix}"
    return f'there is no command "remuda {tried}"; {fix}'


def _command_words(arguments: Sequence[str], commands: Collection[str]) -> list[str]:
    """Return the arguments up to the first that is no word of a command, with this one."""
    words: list[str] = []
    for argument in arguments:
        words.append(argument)
        if " ".join(words) not in commands:
            break
    return words


def suggest_commands(words: Sequence[str], commands: Collection[str]) -> list[str]:
    """Return the commands that were probably meant: similar words in the same group, the same word in another group,
    or a word that means the same."""
    group, last = " ".join(words[:-1]), words[-1].lower()
    beside = [command for command in commands if command.rpartition(" ")[0] == group]
    # `remuda cancel`: a command without its group.
    elsewhere = [] if group else [command for command in commands if " " in command]
    same = _same_word(last, beside) + _same_word(last, elsewhere)
    return (same or _close(last, beside) or _close(last, elsewhere))[:MOST]


def _same_word(word: str, commands: Iterable[str]) -> list[str]:
    means = (word, *SYNONYMS.get(word, ()))
    return [command for command in commands if command in means or command.rpartition(" ")[2] in means]


def _close(word: str, commands: Iterable[str]) -> list[str]:
    by_word: dict[str, list[str]] = {}
    for command in commands:
        by_word.setdefault(command.rpartition(" ")[2], []).append(command)
    return [command for name in get_close_matches(word, by_word, MOST, SIMILAR) for command in by_word[name]]


def _either(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
