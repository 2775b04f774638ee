"""Secrets out of a stream of bytes, before the bytes reach a disk.

Two things are masked. Every occurrence of a known secret; occurrences that overlap become one `[MASKED]`, so that
nothing of the second shows. And what follows a token prefix (`glpat-`…) as long as it is in the token alphabet.

`Masker` is a stream: however its input is cut into pieces, the joined output is the same. It holds back only bytes
that could still become part of a secret. No secret holds a line feed (a secret of several lines is masked line
by line), so a line feed always sets everything before it free: behind one the masker is in its first state.

Because of that, three numbers are its whole state and a new process can go on in the middle of a stream:
`held` says how many input bytes must be fed again, `covered` how many of those an already written `[MASKED]` stands
for, `in_token` whether that mask goes on.

Called by the step runner; decides nothing about lines, files or which values are secret.
"""

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
"""What GitLab's own tokens begin with; they are masked even where nobody listed them."""

SHORTEST_LINE = 4
"""A line of a secret of several lines is no secret of its own below this many characters (`{`, `EOF`)."""

_TOKEN_RUN = re.compile(rb"[0-9A-Za-z._=-]*")


class Secrets:
    """What to mask, compiled once and shared by all streams of a job."""

    __slots__ = ("_families", "prefixes", "texts")

    def __init__(self, values: Iterable[str] = (), prefixes: Iterable[str] = ()) -> None:
        lines = {line.encode("utf-8", "surrogateescape") for value in values for line in _lines(value)}
        self.texts = tuple(sorted(lines, key=lambda text: (-len(text), text)))
        self.prefixes = tuple(sorted({prefix.encode() for prefix in prefixes if prefix and "\n" not in prefix}))
        self._families = _families(self.prefixes)

    def and_also(self, values: Iterable[str]) -> "Secrets":
        """These and more."""
        more = Secrets(values)
        both = Secrets()
        both.texts = tuple(sorted({*self.texts, *more.texts}, key=lambda text: (-len(text), text)))
        both.prefixes, both._families = self.prefixes, self._families
        return both

    def prefixes_in(self, data: bytes) -> Iterable[tuple[int, int]]:
        """Begin and end of every prefix that stands there."""
        for pattern, family in self._families:
            for match in pattern.finditer(data):
                begin = match.start()
                for prefix in family:
                    if data.startswith(prefix, begin):
                        yield begin, begin + len(prefix)

    def are_in(self, data: bytes) -> bool:
        """Whether masking could change anything; cheaper than to try."""
        return any(text in data for text in self.texts) or any(True for _ in self.prefixes_in(data))

    def mask_bytes(self, data: bytes) -> bytes:
        """A whole text at once."""
        if not self.are_in(data):
            return data
        masker = Masker(self)
        return masker.feed(data) + masker.finish()

    def mask(self, text: str) -> str:
        """The same for text."""
        if not self.texts and not self.prefixes:
            return text
        return self.mask_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


class Masker:
    """One stream of bytes through the masks."""

    __slots__ = ("_secrets", "_tail", "covered", "in_token")

    def __init__(self, secrets: Secrets, *, covered: int = 0, in_token: bool = False) -> None:
        self._secrets = secrets
        self._tail = b""
        self.covered = covered
        self.in_token = in_token

    def use(self, secrets: Secrets) -> None:
        """Mask by these from now on, what is held back included."""
        self._secrets = secrets

    @property
    def held(self) -> int:
        """Input bytes that are not decided yet."""
        return len(self._tail)

    def feed(self, data: bytes) -> bytes:
        """The next piece in; what is decided by now out."""
        text = self._tail + data
        tokens = self._tokens(text)
        keep = self._first_undecided(text)
        for begin, start, _ in reversed(tokens):
            # A token must not be cut inside its prefix: without it the rest would not be known as a token.
            if begin < keep < start:
                keep = begin
        return self._emit(text, keep, tokens)

    def finish(self) -> bytes:
        """The stream has ended: nothing can become a secret any more. The masker can be used for a new stream."""
        text = self._tail
        out = self._emit(text, len(text), self._tokens(text))
        self.covered, self.in_token = 0, False
        return out

    def _emit(self, text: bytes, keep: int, tokens: list[tuple[int, int, int]]) -> bytes:
        """Write what lies before `keep`, keep the rest."""
        at, in_token = self._continued(text)
        spans = [(start, end, end == len(text)) for _, start, end in tokens]
        spans += [(start, start + len(secret), False) for secret in self._secrets.texts for start in _all(text, secret)]
        spans.sort()
        out: list[bytes] = []
        for start, end, open_ended in spans:
            if start >= at:
                if start > keep:
                    break
                out += (text[at:start], MASK)
            at = max(at, end)
            in_token = in_token or open_ended
        out.append(text[at:keep])
        at = max(at, keep)
        self._tail = text[keep:]
        self.covered = at - keep
        self.in_token = in_token
        return b"".join(out)

    def _continued(self, text: bytes) -> tuple[int, bool]:
        """Up to where the mask written last still reaches, and whether it may go on behind this text."""
        if not self.in_token or self.covered > len(text):
            return self.covered, self.in_token
        end = _run_end(text, self.covered)
        return end, end == len(text)

    def _tokens(self, text: bytes) -> list[tuple[int, int, int]]:
        """Begin of the prefix, begin and end of the token behind it; not those inside an earlier token."""
        found: list[tuple[int, int, int]] = []
        reach = self._continued(text)[0] if self.in_token else 0
        for begin, start in sorted(self._secrets.prefixes_in(text)):
            if start <= reach:
                continue
            end = _run_end(text, start)
            if end > start:
                found.append((begin, start, end))
                reach = max(reach, end)
        return found

    def _first_undecided(self, text: bytes) -> int:
        """Where the longest end of the text begins that could grow into a secret or into a prefix with a token."""
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
    """Prefixes that begin with the same two bytes, with what finds them at one go: most begin with `gl`.

    A match takes no more than those two bytes, so that no prefix hides in another, and only the first of two that are
    the same: in `:::` there are two `::`.
    """
    families: dict[bytes, list[bytes]] = {}
    for prefix in prefixes:
        families.setdefault(prefix[:2], []).append(prefix)
    return tuple((_finding(begin, family), tuple(family)) for begin, family in families.items())


def _finding(begin: bytes, family: Iterable[bytes]) -> "re.Pattern[bytes]":
    taken = 1 if begin[:1] == begin[1:] else len(begin)
    rests = b"|".join(re.escape(one[taken:]) for one in family)
    return re.compile(re.escape(begin[:taken]) + b"(?=" + rests + b")")


def _lines(value: str) -> list[str]:
    lines = [line for line in value.replace("\r\n", "\n").split("\n") if line.strip()]
    return lines if len(lines) == 1 else [line for line in lines if len(line.strip()) >= SHORTEST_LINE]


def _all(text: bytes, part: bytes) -> Iterable[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _run_end(text: bytes, start: int) -> int:
    match = _TOKEN_RUN.match(text, start)
    return match.end() if match else start


def _partial(text: bytes, pattern: bytes, line: int, longest: int) -> int:
    """Begin of the longest end of the text, in its last line, that the pattern begins with."""
    first = pattern[:1]
    at = text.find(first, max(line, len(text) - longest))
    while at >= 0:
        if pattern.startswith(text[at:]):
            return at
        at = text.find(first, at + 1)
    return len(text)
