"""Mistakes in a definition's expressions and values. Stands alone because most modules of the language raise them."""

from remuda.steps.errors import DefinitionError


class ExpressionError(DefinitionError):
    """An expression cannot be parsed, or has no value here."""


class CheckError(DefinitionError):
    """Inputs, outputs or exports are not what was declared."""
