"""What can go wrong in the manager, as a person sees it: every message says what happened, why, and what to do.

`EnvironmentTemporaryError` and `EnvironmentLostError` are the pair at the boundary to an environment: the first is
tried again, the second ends the job.
"""


class ManagerError(Exception):
    """The manager cannot start or go on; the message is for the operator."""


class ConfigError(ManagerError):
    """The configuration file cannot be used."""


class ClosingError(ConfigError):
    """It cannot be used yet: what one of its runners had is still being closed. Nothing is wrong with the file."""


class DataFolderError(ManagerError):
    """The data folder is in use, unreadable, or of a newer version."""


class JournalDamagedError(DataFolderError):
    """The journal is no longer what was written; without it, jobs are found through their agents."""


class FolderTakenError(DataFolderError):
    """The data folder is another manager's."""


class RegisterError(ManagerError):
    """The server did not take the runner."""


class NotStoredError(Exception):
    """A job that came cannot be taken now: it would not outlive this process."""


class EnvironmentTemporaryError(Exception):
    """The environment or its agent cannot be reached now; trying again may help."""


class ConnectingError(EnvironmentTemporaryError):
    """The first connection to its agent is being made, and nothing is wrong so far."""


class EnvironmentLostError(Exception):
    """The environment can never run this job (any more); the message is the cause the user sees."""
