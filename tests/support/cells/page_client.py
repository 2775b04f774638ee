"""A visitor of the web pages without a browser: keeps cookies, follows no redirects, and sends what a test wants."""

import http.client
import re
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.support.cells.served_cell import Answer, ServedCell

_CSRF = re.compile(rb'<meta name="csrf" content="([0-9a-f]*)">')
PAGE = "text/html,application/xhtml+xml"


class PageClient:
    def __init__(self, cell: ServedCell) -> None:
        self.cell = cell
        self.cookies: dict[str, str] = {}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request with the cookies that were set so far, and keep those of the answer. In header names,
        underscores stand for hyphens."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        fields = {"Accept": PAGE} | ({"Cookie": cookie} if cookie else {}) | headers
        answer = self.cell.send(method, path, body, **fields)
        for line in answer.headers.get_all("set-cookie") or []:
            for name, morsel in SimpleCookie(line).items():
                self.cookies.pop(name, None)
                if morsel.value and morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post_form(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        body = urlencode(fields).encode()
        return self.send("POST", path, body, **({"Content_Type": "application/x-www-form-urlencoded"} | headers))

    def sign_in(self, token: str) -> None:
        answer = self.post_form("/-/sign-in", {"token": token})
        assert answer.status == 303, answer

    def csrf(self) -> str:
        """The CSRF token in the pages of this visitor."""
        match = _CSRF.search(self.get("/-/profile").body)
        assert match is not None
        return match[1].decode()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Call the API as the script of a page does."""
        return self.send(method, path, body, **({"X_CSRF_Token": self.csrf(), "Origin": self.cell.url} | headers))

    @property
    def is_signed_in(self) -> bool:
        return self.get("/api/v4/user").status == 200


def fetch(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Send a request to any server on loopback; redirects are not followed."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(
            method, f"{parts.path}?{parts.query}", body, {k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()
