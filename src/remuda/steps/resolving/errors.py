"""Errors of resolving a step reference. Their texts are shown to users and never contain credentials."""

from remuda.steps.errors import AgentError


class ResolveError(AgentError):
    """A package cannot be fetched, and a retry does not help: the reference is wrong, or access is denied."""

    temporary = False


class TemporaryResolveError(ResolveError):
    """A package can perhaps be fetched later or elsewhere: no server answers, or this machine lacks a program."""

    temporary = True

    def __init__(self, text: str, *, retry_after: float | None = None, is_away: bool = True) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.is_away = is_away
        """True if the server is away: trying again soon may help, and the cache may be used meanwhile."""


def trust_error(host: str, detail: str) -> ResolveError:
    """Return the error for an unverifiable certificate, with a hint that the machine may have no CA certificates."""
    return TemporaryResolveError(
        f"the certificate of {host} cannot be checked: {detail}; install CA certificates on this machine (package "
        "ca-certificates), or name a file with them in SSL_CERT_FILE",
        is_away=False,
    )
