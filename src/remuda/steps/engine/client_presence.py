"""Whether anybody still wants a job: the client that watches it, or one that may come back. Pure.

A manager that dies comes back and goes on; one that never does must not leave jobs running and files lying for ever. So
each job says how long it waits for its client (`patience_seconds` of its request), counted from when the last watch
stream that had to do with it ended, or from the agent's own start. `watching` tells who is there, `jobs` asks whether
the wait is over.
"""


class ClientPresence:
    """Of one job."""

    __slots__ = ("_client", "_left_at", "_patience_seconds")

    def __init__(self, patience_seconds: int, now: float) -> None:
        self._patience_seconds = patience_seconds
        self._client: object | None = None
        self._left_at = now

    @property
    def has_patience(self) -> bool:
        """Whether somebody shall be waited for at all."""
        return self._patience_seconds > 0

    @property
    def is_present(self) -> bool:
        """Whether a client is there."""
        return self._client is not None

    def attach(self, client: object) -> None:
        """A client has to do with the job."""
        self._client = client

    def detach(self, client: object, now: float) -> None:
        """That client is gone; another one may have come before."""
        if self._client is client:
            self._client, self._left_at = None, now

    def is_expired(self, now: float) -> bool:
        """Whether nobody will come any more."""
        return self.has_patience and self._client is None and now - self._left_at >= self._patience_seconds
