"""Why a reference led nowhere. Texts are for people and never hold credentials."""

from remuda.steps.errors import AgentError


class ResolveError(AgentError):
    """A step's package cannot be had; as it is, for good: the reference is wrong, or refused."""

    temporary = False


class TemporaryResolveError(ResolveError):
    """The same reference may work later or elsewhere: a server that is away, a machine that lacks a program."""

    temporary = True

    def __init__(self, text: str, *, retry_after: float | None = None, is_away: bool = True) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.is_away = is_away
        """Trying again soon may help, and what is in the cache will do meanwhile."""


def trust_error(host: str, detail: str) -> ResolveError:
    """The server's certificate leads to nobody that this machine trusts, often because it knows nobody at all."""
    return TemporaryResolveError(
        f"the certificate of {host} cannot be checked: {detail}; install CA certificates on this machine (package "
        "ca-certificates), or name a file with them in SSL_CERT_FILE",
        is_away=False,
    )
