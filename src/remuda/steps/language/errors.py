"""Exceptions for mistakes in a definition's expressions and values, shared by most modules of the language."""

from remuda.steps.errors import DefinitionError


class ExpressionError(DefinitionError):
    """Raised if an expression cannot be parsed or evaluated."""


class CheckError(DefinitionError):
    """Raised if inputs, outputs or exports do not match their declaration."""
