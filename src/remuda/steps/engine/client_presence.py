"""Whether a client still attends a job, and whether one that left may still come back. Pure.

A manager that dies comes back and goes on; one that never does must not leave jobs running and files on the disk
forever. Each job says how long it waits for its client (`patience_seconds` of its request), counted from the end of the
last watch stream that had to do with it, or from the agent's start. `watch` reports clients, `jobs` asks for expired
ones. It stands alone because `agent` and `engine` both use it.
"""


class ClientPresence:
    __slots__ = ("_client", "_left_at", "_patience_seconds")

    def __init__(self, patience_seconds: int, now: float) -> None:
        self._patience_seconds = patience_seconds
        self._client: object | None = None
        self._left_at = now

    @property
    def has_patience(self) -> bool:
        """True if the job waits for its client for a limited time only."""
        return self._patience_seconds > 0

    @property
    def is_present(self) -> bool:
        return self._client is not None

    def attach(self, client: object) -> None:
        self._client = client

    def detach(self, client: object, now: float) -> None:
        """That client has gone. Ignored if another one has come since."""
        if self._client is client:
            self._client, self._left_at = None, now

    def is_expired(self, now: float) -> bool:
        """True if no client has been present for longer than the job waits."""
        return self.has_patience and self._client is None and now - self._left_at >= self._patience_seconds
