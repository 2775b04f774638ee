"""Exceptions for mistakes in the expressions and values of a definition."""

from remuda.steps.errors import DefinitionError


class ExpressionError(DefinitionError):
    """Raised if an expression cannot be parsed or evaluated."""


class CheckError(DefinitionError):
    """Raised if the inputs, outputs or exports of a step are invalid, for example do not match their declaration."""
