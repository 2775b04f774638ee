"""Downloads included files from URLs on an allow list, empty by default; targets of redirects must be on it, too. An
entry is a URL prefix (`remuda.pipeline.include.allowed_addresses`), or a host, which allows all its https URLs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from remuda.lib.clock import Clock, SystemClock
from remuda.lib.exits import BadInputError
from remuda.pipeline import SourceProblem
from remuda.pipeline.errors import printable
from remuda.pipeline.include.allowed_addresses import Prefix, read_prefix
from remuda.pipeline.templates import is_address

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from urllib.request import OpenerDirector, Request

LIMIT_BYTES = 1024 * 1024
TIMEOUT_SECONDS = 10.0

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?")


def read_allowed(entries: Sequence[str]) -> tuple[Prefix, ...]:
    """Parse the values of `--allow-remote` into URL prefixes. Raises BadInputError if one is invalid."""
    allowed: list[Prefix] = []
    for entry in entries:
        prefix = read_prefix(f"https://{entry}" if _HOST.fullmatch(entry) else entry)
        if prefix is None:
            raise BadInputError(f"--allow-remote {entry}: give a host, or an address like https://example.org/ci/")
        allowed.append(prefix)
    return tuple(allowed)


def read_template_source(text: str) -> str:
    """Check the value of `--templates`: an address, or a folder, which is returned as an absolute path; empty if there
    is none. Raises BadInputError if it is neither."""
    if not text or (is_address(text) and read_prefix(text) is not None):
        return text
    folder = Path(text)
    if is_address(text) or not folder.is_dir():
        raise BadInputError(
            f"--templates {text}: is no folder; give one, or the address of a server like https://gitlab.com"
        )
    return str(folder.resolve())


class Remote:
    """Downloads files whose URLs are allowed, each of them once. `asks`: ask the user about other URLs."""

    def __init__(self, allowed: Sequence[Prefix] = (), *, asks: bool = False, clock: Clock | None = None) -> None:
        self.allowed = list(allowed)
        self._asks = asks
        self._clock = clock or SystemClock()
        self._fetched: dict[str, str | SourceProblem] = {}

    def text(self, url: str) -> str | SourceProblem:
        if url not in self._fetched:
            problem = self._check_allowed(url)
            self._fetched[url] = problem or self._fetch(url)
        return self._fetched[url]

    def _check_allowed(self, url: str) -> SourceProblem | None:
        address = read_prefix(url)
        if address is not None and any(prefix.covers(address) for prefix in self.allowed):
            return None
        from remuda.localrun.settings.answers import is_permitted
        from remuda.localrun.settings.places import user_file

        if self._asks and address and is_permitted(f"Fetch {printable(url, 300)}?", "allow-remote", url):
            self.allowed.append(address)
            return None
        site = _site(url)
        return SourceProblem(
            reason="the address is not allowed here",
            suggestion=f'pass --allow-remote {site}, or set allow-remote = ["{site}"] in {user_file()}',
        )

    def _fetch(self, url: str) -> str | SourceProblem:
        from http.client import HTTPException
        from urllib.error import URLError

        deadline = self._clock.monotonic() + TIMEOUT_SECONDS
        data = b""
        try:
            with self._opener().open(url, timeout=TIMEOUT_SECONDS) as answer:
                # The socket's timeout is per read; a server that sends a byte a second would never end.
                while len(data) <= LIMIT_BYTES and (piece := answer.read1(LIMIT_BYTES)):
                    data += piece
                    if self._clock.monotonic() > deadline:
                        raise TimeoutError("timed out")
            if len(data) > LIMIT_BYTES:
                return SourceProblem(reason=f"the file is larger than {LIMIT_BYTES} bytes", suggestion="split it")
            return data.decode()
        except _NotAllowedError as error:
            return error.problem
        except UnicodeDecodeError:
            return SourceProblem(reason="the file is not UTF-8 text", suggestion="check the address")
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = printable(str(getattr(error, "reason", "") or error) or type(error).__name__, 200)
            return SourceProblem(
                reason=f"the file cannot be fetched: {reason}",
                suggestion="check the address",
                is_missing=getattr(error, "code", None) in (404, 410),
            )

    def _opener(self) -> "OpenerDirector":
        """Return a urllib opener for http and https only, which checks redirects against the allow list."""
        from urllib import request

        check_allowed = self._check_allowed

        class Redirects(request.HTTPRedirectHandler):
            def redirect_request(
                self, req: "Request", fp: IO[bytes], code: int, msg: str, headers: "HTTPMessage", newurl: str
            ) -> "Request | None":
                if (problem := check_allowed(newurl)) is not None:
                    reason = f"the server redirects to {printable(newurl, 200)}, which is not allowed here"
                    raise _NotAllowedError(SourceProblem(reason=reason, suggestion=problem.suggestion))
                return super().redirect_request(req, fp, code, msg, headers, newurl)

        opener = request.OpenerDirector()
        for handler in (
            request.ProxyHandler(),
            request.HTTPHandler(),
            request.HTTPSHandler(),
            request.HTTPDefaultErrorHandler(),
            request.HTTPErrorProcessor(),
            Redirects(),
        ):
            opener.add_handler(handler)
        return opener


class _NotAllowedError(Exception):
    def __init__(self, problem: SourceProblem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def _site(url: str) -> str:
    """Return scheme and host of a URL, which a message suggests for `--allow-remote`; `URL_PREFIX` if it is invalid."""
    address = read_prefix(url)
    return printable(f"{address.scheme}://{urlsplit(url).netloc}/", 200) if address else "URL_PREFIX"
