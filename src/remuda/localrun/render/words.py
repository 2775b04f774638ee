"""Formats small texts that many commands print: numbers with a noun, durations, names on one line. Pure."""


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Format a duration for people: `0.4s`, `12.3s`, `2m 03s`, `1h 02m`."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def size_in_words(size: float) -> str:
    """Format a number of bytes: `17 bytes`, `1.4 MiB`."""
    if size < 1024:
        return plural(round(size), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def first_sentence(text: str) -> str:
    """Return a message without the sentences after the first, which say more or what to do."""
    return text.partition(". ")[0]


def on_one_line(text: str) -> str:
    """Escape line breaks and control characters in foreign text, such as a job name: one line, no terminal control."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
