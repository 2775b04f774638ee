"""What can be wrong with a definition's expressions and values. Both are mistakes of whoever wrote the step."""

from remuda.steps.errors import DefinitionError


class ExpressionError(DefinitionError):
    """An expression cannot be read, or has no value here."""


class CheckError(DefinitionError):
    """Inputs, outputs or exports are not what was declared."""
