"""Says in plain words what is wrong with the options and arguments of a command. A separate module, because only a
mistyped command needs it. Pure."""

from cyclopts import CoercionError, CycloptsError, MissingArgumentError, UnusedCliTokensError

_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}


def explain_usage_error(error: CycloptsError) -> str:
    """Return one sentence about the error, with a full stop."""
    match error:
        case UnusedCliTokensError(unused_tokens=[*words]) if words:
            names = " and ".join(f'"{word}"' for word in words)
            return f"unexpected argument{'s' if len(words) > 1 else ''} {names}."
        case CoercionError(target_type=kind, token=token) if token is not None and kind in _KINDS:
            return f'{_name(error, token.keyword)} must be {_KINDS[kind]}, not "{token.value}".'
        case MissingArgumentError():
            return f"{_name(error, error.keyword)} {'needs a value' if error.keyword else 'is missing'}."
        case _:
            return str(error).strip()


def _name(error: CycloptsError, keyword: str | None) -> str:
    return keyword or (error.argument.name if error.argument is not None else "a value")
