"""Tracks whether a client (a runner manager) is connected to a job, and when the job stops waiting for it. No I/O.

A job waits for its client as long as its request says (`patience_seconds`; 0: forever). The time counts from the end of
the last stream over which a client watched the job, or from when this agent accepted or resumed it. After that time a
running job is cancelled, and an ended one is removed. It is its own module, as `agent` and `engine` use it."""


class ClientPresence:
    __slots__ = ("_client", "_left_at", "_patience_seconds")

    def __init__(self, patience_seconds: int, now: float) -> None:
        self._patience_seconds = patience_seconds
        self._client: object | None = None
        self._left_at = now

    @property
    def has_patience(self) -> bool:
        """True if the job waits only a limited time (`patience_seconds`) for a client to connect."""
        return self._patience_seconds > 0

    @property
    def is_present(self) -> bool:
        return self._client is not None

    def attach(self, client: object) -> None:
        self._client = client

    def detach(self, client: object, now: float) -> None:
        """Record that a client has disconnected at the time `now`. Ignored if another client has connected since."""
        if self._client is client:
            self._client, self._left_at = None, now

    def is_expired(self, now: float) -> bool:
        """True if no client was connected for `patience_seconds`: cancel or remove the job. Never if that is 0."""
        return self.has_patience and self._client is None and now - self._left_at >= self._patience_seconds
