"""How the command ends: every exit code, and which error leads to which one.

Errors are known here by name, so that naming them imports nothing; a test checks that each name exists. An error that
is not listed is a fault of the program and ends with FAILURE.
"""

from enum import IntEnum


class Exit(IntEnum):
    """What the shell sees. Scripts rely on these."""

    SUCCESS = 0
    FAILURE = 1  # the pipeline failed, or something broke that is not the caller's doing
    BAD_INPUT = 2  # the caller can correct it: options, files, addresses, tokens
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or a closed terminal, as shells report SIGINT
    BROKEN_PIPE = 141  # the reader of our output went away, as shells report SIGPIPE


class CommandError(Exception):
    """The command cannot go on; the message says what happened, why, and what to do."""

    exit = Exit.FAILURE


class BadInputError(CommandError):
    """What the caller gave cannot work."""

    exit = Exit.BAD_INPUT


class InterruptedRunError(CommandError):
    """The caller stopped it."""

    exit = Exit.INTERRUPTED


KNOWN: dict[str, Exit] = {
    "cyclopts.exceptions.CycloptsError": Exit.BAD_INPUT,
    "remuda.cell.errors.CellError": Exit.BAD_INPUT,
    "remuda.cell.errors.StoreError": Exit.FAILURE,
    "remuda.manager.errors.ManagerError": Exit.BAD_INPUT,
    "remuda.pipeline.errors.PipelineError": Exit.BAD_INPUT,
    "remuda.wire.user_client.RefusedError": Exit.BAD_INPUT,
    "remuda.wire.user_client.UserApiError": Exit.FAILURE,
}
"""Errors of other packages that a person should see as a message."""


def first_cause(error: BaseException) -> BaseException:
    """The first single error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def code_of(error: BaseException) -> Exit | None:
    """The exit code of an error whose message is meant for people, None for any other."""
    if isinstance(error, CommandError):
        return error.exit
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    for cls in type(error).__mro__:
        known = KNOWN.get(f"{cls.__module__}.{cls.__qualname__}")
        if known is not None:
            return known
    return None
