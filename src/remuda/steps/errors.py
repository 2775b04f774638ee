"""What can be wrong with a request to the agent. A job's own failure is data (`plan.Outcome`), not an exception."""

EXIT_IN_USE = 75
"""What an agent exits with that finds its data folder served by another."""


class AgentError(Exception):
    """The agent cannot do what was asked."""


class BadRequestError(AgentError):
    """The request can never work as it is."""


class DefinitionError(BadRequestError):
    """The steps text is not a definition; says where and what to write instead."""


class UnknownJobError(AgentError):
    """No job has this id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f'no job with id "{job_id}"')


class DataInUseError(AgentError):
    """Another agent serves this data folder."""


class DamagedError(AgentError):
    """A file of a job is not what was written to it; says which."""


class PolicyError(BadRequestError):
    """A policy cannot be read; says whose, which key, and what to write instead."""
