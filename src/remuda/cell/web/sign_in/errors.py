"""The error of a sign-in that fails. In its own module, because the pure checks and the pages raise it."""


class SignInError(Exception):
    """A sign-in failed. The text is for the person in front of the browser: cause and fix. `reason`: the cause in short
    for the audit log; `status`: the status of the page."""

    def __init__(self, text: str, *, reason: str, status: int = 403) -> None:
        super().__init__(text)
        self.reason = reason
        self.status = status
