"""Exit codes of the `remuda` command, and the errors that carry one. Scripts rely on the codes."""

from enum import IntEnum


class Exit(IntEnum):
    SUCCESS = 0
    FAILURE = 1  # the pipeline failed, or something broke that the caller cannot correct
    BAD_INPUT = 2  # the caller can correct it: options, files, addresses, tokens
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or a closed terminal, as shells report SIGINT
    BROKEN_PIPE = 141  # the reader of our output went away, as shells report SIGPIPE


class CommandError(Exception):
    """The command cannot continue. The message says what happened, why, and what to do."""

    exit = Exit.FAILURE


class BadInputError(CommandError):
    exit = Exit.BAD_INPUT


class InterruptedRunError(CommandError):
    exit = Exit.INTERRUPTED
