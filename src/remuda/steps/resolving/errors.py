"""Errors of a resolution. Their texts are for people and never contain credentials. Stands alone because every module
of the package raises them.
"""

from remuda.steps.errors import AgentError


class ResolveError(AgentError):
    """A package cannot be fetched, and trying again does not help: the reference is wrong, or refused."""

    temporary = False


class TemporaryResolveError(ResolveError):
    """The same reference may work later or elsewhere: a server is away, or this machine lacks a program."""

    temporary = True

    def __init__(self, text: str, *, retry_after: float | None = None, is_away: bool = True) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.is_away = is_away
        """Trying again soon may help, and the cache may be used meanwhile."""


def trust_error(host: str, detail: str) -> ResolveError:
    """The certificate of a server is not trusted, often because the machine has no CA certificates at all."""
    return TemporaryResolveError(
        f"the certificate of {host} cannot be checked: {detail}; install CA certificates on this machine (package "
        "ca-certificates), or name a file with them in SSL_CERT_FILE",
        is_away=False,
    )
