"""Collects the mistakes in a definition file, so that one pass reports them all."""

from collections.abc import Iterable
from itertools import islice

from remuda.steps.errors import DefinitionError

MAX_MISTAKES = 20
MOST_COMPARED = 500


class Report:
    def __init__(self, file: str) -> None:
        self.file = file
        self._mistakes: list[tuple[int, str]] = []

    def add(self, line: int, message: str) -> None:
        """Add a mistake at this line. Raises DefinitionError with all mistakes when there are MAX_MISTAKES."""
        self._mistakes.append((line, message))
        if len(self._mistakes) >= MAX_MISTAKES:
            self.finish()

    def finish(self) -> None:
        """Raise DefinitionError with all mistakes, in the order of the file, if there are any."""
        if self._mistakes:
            lines = [f"{self.file}:{line}: {message}" for line, message in sorted(self._mistakes, key=lambda m: m[0])]
            raise DefinitionError("\n".join(dict.fromkeys(lines)))


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return a hint about an unknown word: the most similar allowed word or, if none is similar, all of them."""
    names = sorted(allowed)
    return did_you_mean(word, names) or (f"; known: {', '.join(names)}" if names else "")


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a hint for a message about an unknown word: the most similar allowed word, or an empty text if none is
    similar. Unlike `nearest` it never lists all words, which may be many or secret."""
    import difflib  # imported only for a mistake

    close = difflib.get_close_matches(word[:100], list(islice(allowed, MOST_COMPARED)), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
