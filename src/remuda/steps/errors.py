"""Exceptions of the agent. The failure of a job is not an exception but a value (`job_tree.outcome.Outcome`)."""

EXIT_IN_USE = 75
"""Exit code of an agent whose data folder is served by another one."""


class AgentError(Exception):
    """The agent cannot do what was requested. Base class of the agent's errors."""


class BadRequestError(AgentError):
    """The request is invalid, so repeating it does not help."""


class DefinitionError(BadRequestError):
    """The definition of steps is invalid. The message says where, and what to write instead."""


class UnknownJobError(AgentError):
    def __init__(self, job_id: str) -> None:
        super().__init__(f'no job with id "{job_id}"')


class DataInUseError(AgentError):
    """The data folder cannot be used, because another agent uses it."""


class DamagedError(AgentError):
    """A file of a job on disk differs from what the agent wrote to it. The message names the file."""


class PolicyError(BadRequestError):
    """A step policy is invalid. The message names the policy's author, the key, and what to write instead."""
