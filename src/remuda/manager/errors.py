"""The manager's errors. Every message says what happened, why, and what to do."""


class ManagerError(Exception):
    """The manager cannot start or continue; the message is for the operator."""


class ConfigError(ManagerError):
    """The configuration file cannot be used."""


class ClosingError(ConfigError):
    """An environment is still being closed, or its machines are being removed; a later attempt may succeed."""


class DataFolderError(ManagerError):
    """The manager's data folder is in use, unreadable, or was written by a newer version."""


class JournalDamagedError(DataFolderError):
    """The journal (file of all jobs) is damaged. The manager replaces it, and recovers running jobs from agents."""


class FolderTakenError(DataFolderError):
    """Another manager uses the data folder."""


class RegisterError(ManagerError):
    """The server refused the runner or could not be reached, or the configuration file could not be written."""


class NotStoredError(Exception):
    """A job received from the server cannot be stored in the journal, the file of current jobs, so it is not run."""


class EnvironmentTemporaryError(Exception):
    """The environment or its agent is unreachable now; a retry may help."""


class ConnectingError(EnvironmentTemporaryError):
    """The first connection to the agent is still being made, so the call cannot be made yet."""


class EnvironmentLostError(Exception):
    """The environment can never run this job, so the job fails. The message is shown to its user as the cause."""
