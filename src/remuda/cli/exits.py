"""Maps an error to the message and the exit code of the command, for `remuda.cli.main`.

Error classes are listed by name, so that this module need not import the modules that define them; a test checks that
each name exists."""

from remuda.lib.exits import CommandError, Exit

KNOWN: dict[str, Exit] = {
    "cyclopts.exceptions.CycloptsError": Exit.BAD_INPUT,
    "remuda.cell.errors.CellError": Exit.BAD_INPUT,
    "remuda.cell.errors.StoreError": Exit.FAILURE,
    "remuda.manager.errors.ManagerError": Exit.BAD_INPUT,
    "remuda.pipeline.errors.PipelineError": Exit.BAD_INPUT,
    "remuda.wire.user_client.RefusedError": Exit.BAD_INPUT,
    "remuda.wire.user_client.UserApiError": Exit.FAILURE,
}
"""Exit codes of errors whose message is written for users, by the name of the class."""


def first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def code_of(error: BaseException) -> Exit | None:
    """Return the exit code of an expected error, whose message is written for users; None for any other error."""
    if isinstance(error, CommandError):
        return error.exit
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    for cls in type(error).__mro__:
        code = KNOWN.get(f"{cls.__module__}.{cls.__qualname__}")
        if code is not None:
            return code
    return None


def describe(error: BaseException) -> tuple[str, Exit]:
    error = first_cause(error)
    code = code_of(error)
    if code is not None:
        return str(error) or "interrupted", code
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # Only arguments, variables and file names can hold bytes that are not text.
        return "an option, a variable or a file name is not UTF-8; write it in UTF-8", Exit.BAD_INPUT
    if isinstance(error, PermissionError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}permission denied; correct the permissions, or choose another place", Exit.BAD_INPUT
    if isinstance(error, OSError):
        return f"{error}. Is the disk full, or are permissions missing?", Exit.FAILURE
    return (
        f"internal error: {type(error).__name__}: {error}\n"
        "This is a bug in remuda. REMUDA_DEBUG=1 shows the traceback; please report it.",
        Exit.FAILURE,
    )
