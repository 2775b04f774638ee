"""Draws a badge as GitLab does: a key such as `pipeline` on the left, its value on the right, as an SVG image."""

from xml.sax.saxutils import escape, quoteattr

LONGEST_TEXT = 64
_COLOURS = {
    "success": "#2f7d32",
    "failed": "#c62828",
    "running": "#1d56a8",
    "pending": "#8a5a00",
    "preparing": "#8a5a00",
    "waiting_for_resource": "#8a5a00",
}
_GREY = "#5c564e"
_COVERAGE = ((95.0, "#2f7d32"), (90.0, "#5a7a1c"), (75.0, "#8a5a00"), (0.0, "#c62828"))
"""Least percentage for each colour: good, acceptable, medium, low, as in GitLab."""
_NARROW, _WIDE = frozenset("fijlrtI.,:;|!'()[]1 "), frozenset("mwMW%@")
_HEIGHT, _PADDING = 20, 6


def choose_colour(value: str | float | None) -> str:
    """Return the colour for a pipeline's status, or for a coverage in percent."""
    if isinstance(value, str):
        return _COLOURS.get(value, _GREY)
    return _GREY if value is None else next((colour for least, colour in _COVERAGE if value >= least), _GREY)


def _measure(text: str) -> int:
    """Estimate the width of a text in pixels. The image then stretches the text to it, whatever the font."""
    return round(sum(4 if c in _NARROW else 10 if c in _WIDE else 7 if ord(c) < 0x300 else 11 for c in text))


def _clean(text: str) -> str:
    """Cut a text, and replace what XML does not allow or what changes the direction of the text."""
    shown = "".join(c if c.isprintable() else " " for c in text[:LONGEST_TEXT])
    return f"{shown}…" if len(text) > LONGEST_TEXT else shown


def draw_badge(key: str, value: str, colour: str, *, is_flat_square: bool = False) -> str:
    """Return the SVG of a badge. Key and value may be any text."""
    key, value = _clean(key), _clean(value)
    left, right = _measure(key) + 2 * _PADDING, _measure(value) + 2 * _PADDING
    width, radius = left + right, 0 if is_flat_square else 3

    def write(text: str, x: float, length: int) -> str:
        return f'<text x="{x:g}" y="14" textLength="{length}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'

    title = f"{key}: {value}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" role="img"'
        f" aria-label={quoteattr(title)}><title>{escape(title)}</title>"
        f'<clipPath id="r"><rect width="{width}" height="{_HEIGHT}" rx="{radius}"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{_HEIGHT}" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="DejaVu Sans,Verdana,Geneva,sans-serif" font-size="11">'
        f"{write(key, left / 2, left - 2 * _PADDING)}{write(value, left + right / 2, right - 2 * _PADDING)}</g></svg>"
    )
