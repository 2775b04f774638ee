"""Mask secrets in a stream of bytes before it is written to disk.

Two things are replaced by `[MASKED]`: known secrets (overlapping ones by one mask), and characters of the token
alphabet after a token prefix (`glpat-`…). The output does not depend on how the input is cut. Bytes that could become
part of a secret are written later, at the latest at the end of their line: secrets of several lines are masked line by
line.

Three values are the whole state, so a new process can continue in the middle of a stream: `pending` (input bytes to
feed again), `covered` (how many of those a written `[MASKED]` stands for), `in_token` (inside a masked token)."""

import re
from collections.abc import Iterable

MASK = b"[MASKED]"

TOKEN_PREFIXES = (
    "glpat-",
    "gloas-",
    "gldt-",
    "glrt-",
    "glcbt-",
    "glrtr-",
    "glptt-",
    "glft-",
    "glimt-",
    "glagent-",
    "glsoat-",
    "glffct-",
    "_gitlab_session=",
    "gltok-",
)
"""Prefixes of GitLab's tokens. Text that begins with one is masked where a caller passes these prefixes."""

SHORTEST_LINE = 4
"""Shorter lines of a multi-line secret (`{`, `EOF`) are not masked."""

_TOKEN_RUN = re.compile(rb"[0-9A-Za-z._=-]*")


class Secrets:
    """The texts and prefixes to mask, compiled once and shared by all streams of a job."""

    __slots__ = ("_families", "prefixes", "texts")

    def __init__(self, values: Iterable[str] = (), prefixes: Iterable[str] = ()) -> None:
        lines = {line.encode("utf-8", "surrogateescape") for value in values for line in _lines(value)}
        self.texts = tuple(sorted(lines, key=lambda text: (-len(text), text)))
        self.prefixes = tuple(sorted({prefix.encode() for prefix in prefixes if prefix and "\n" not in prefix}))
        self._families = _families(self.prefixes)

    def with_values(self, values: Iterable[str]) -> "Secrets":
        more = Secrets(values)
        both = Secrets()
        both.texts = tuple(sorted({*self.texts, *more.texts}, key=lambda text: (-len(text), text)))
        both.prefixes, both._families = self.prefixes, self._families
        return both

    def find_prefixes(self, data: bytes) -> Iterable[tuple[int, int]]:
        """Yield start and end of each token prefix in the data; they may overlap and are not sorted."""
        for pattern, family in self._families:
            for match in pattern.finditer(data):
                begin = match.start()
                for prefix in family:
                    if data.startswith(prefix, begin):
                        yield begin, begin + len(prefix)

    def can_match(self, data: bytes) -> bool:
        """True if the data may contain something to mask. Faster than masking it."""
        return any(text in data for text in self.texts) or any(True for _ in self.find_prefixes(data))

    def mask_bytes(self, data: bytes) -> bytes:
        if not self.can_match(data):
            return data
        masker = Masker(self)
        return masker.feed(data) + masker.finish()

    def mask(self, text: str) -> str:
        if not self.texts and not self.prefixes:
            return text
        return self.mask_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


class Masker:
    __slots__ = ("_secrets", "_tail", "covered", "in_token")

    def __init__(self, secrets: Secrets, *, covered: int = 0, in_token: bool = False) -> None:
        self._secrets = secrets
        self._tail = b""
        self.covered = covered
        self.in_token = in_token

    def use(self, secrets: Secrets) -> None:
        """Use these secrets from now on, also for bytes that were fed before but are not written yet."""
        self._secrets = secrets

    @property
    def pending(self) -> int:
        return len(self._tail)

    def feed(self, data: bytes) -> bytes:
        """Mask the next piece; return bytes to write. A possible start of a secret is kept for a later call."""
        text = self._tail + data
        tokens = self._tokens(text)
        keep = self._first_undecided(text)
        for begin, start, _ in reversed(tokens):
            # A token must not be cut inside its prefix: without it the rest would not be known as a token.
            if begin < keep < start:
                keep = begin
        return self._emit(text, keep, tokens)

    def finish(self) -> bytes:
        """End the stream: mask and return the kept bytes. The masker can then be used for a new stream."""
        text = self._tail
        out = self._emit(text, len(text), self._tokens(text))
        self.covered, self.in_token = 0, False
        return out

    def _emit(self, text: bytes, keep: int, tokens: list[tuple[int, int, int]]) -> bytes:
        position, in_token = self._mask_end(text)
        spans = [(start, end, end == len(text)) for _, start, end in tokens]
        spans += [
            (start, start + len(secret), False) for secret in self._secrets.texts for start in _find_all(text, secret)
        ]
        spans.sort()
        out: list[bytes] = []
        for start, end, open_ended in spans:
            if start >= position:
                if start > keep:
                    break
                out += (text[position:start], MASK)
            position = max(position, end)
            in_token = in_token or open_ended
        out.append(text[position:keep])
        position = max(position, keep)
        self._tail = text[keep:]
        self.covered = position - keep
        self.in_token = in_token
        return b"".join(out)

    def _mask_end(self, text: bytes) -> tuple[int, bool]:
        """Return up to which offset a written `[MASKED]` covers the text, and whether its token may continue after."""
        if not self.in_token or self.covered > len(text):
            return self.covered, self.in_token
        end = _run_end(text, self.covered)
        return end, end == len(text)

    def _tokens(self, text: bytes) -> list[tuple[int, int, int]]:
        """Find tokens, as offsets: start of the prefix, start and end of the part to mask. Nested ones are left out."""
        tokens: list[tuple[int, int, int]] = []
        reach = self._mask_end(text)[0] if self.in_token else 0
        for begin, start in sorted(self._secrets.find_prefixes(text)):
            if start <= reach:
                continue
            end = _run_end(text, start)
            if end > start:
                tokens.append((begin, start, end))
                reach = max(reach, end)
        return tokens

    def _first_undecided(self, text: bytes) -> int:
        """Return the offset of the first byte not to write yet: more input could make the rest a secret or token."""
        line = text.rfind(b"\n") + 1
        keep = len(text)
        if line == keep:
            return keep
        for secret in self._secrets.texts:
            keep = min(keep, _partial(text, secret, line, len(secret) - 1))
        for prefix in self._secrets.prefixes:
            keep = min(keep, _partial(text, prefix, line, len(prefix)))
        return keep


def _families(prefixes: Iterable[bytes]) -> tuple[tuple["re.Pattern[bytes]", tuple[bytes, ...]], ...]:
    """Group token prefixes by their first two bytes (most begin with `gl`). Returns for each group a pattern that finds
    where one of its prefixes begins, and the prefixes. A match consumes only those two bytes, or one if they are equal,
    so that overlapping prefixes are found."""
    families: dict[bytes, list[bytes]] = {}
    for prefix in prefixes:
        families.setdefault(prefix[:2], []).append(prefix)
    return tuple((_compile_family(begin, family), tuple(family)) for begin, family in families.items())


def _compile_family(begin: bytes, family: Iterable[bytes]) -> "re.Pattern[bytes]":
    size = 1 if begin[:1] == begin[1:] else len(begin)
    rests = b"|".join(re.escape(prefix[size:]) for prefix in family)
    return re.compile(re.escape(begin[:size]) + b"(?=" + rests + b")")


def _lines(value: str) -> list[str]:
    lines = [line for line in value.replace("\r\n", "\n").split("\n") if line.strip()]
    return lines if len(lines) == 1 else [line for line in lines if len(line.strip()) >= SHORTEST_LINE]


def _find_all(text: bytes, part: bytes) -> Iterable[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _run_end(text: bytes, start: int) -> int:
    match = _TOKEN_RUN.match(text, start)
    return match.end() if match else start


def _partial(text: bytes, pattern: bytes, line: int, longest: int) -> int:
    """Return the offset of the longest suffix of `text` with which `pattern` begins; else the length of the text.
    `line`: offset of the last line, before which no suffix starts. `longest`: maximum length of a suffix."""
    first = pattern[:1]
    start = text.find(first, max(line, len(text) - longest))
    while start >= 0:
        if pattern.startswith(text[start:]):
            return start
        start = text.find(first, start + 1)
    return len(text)
