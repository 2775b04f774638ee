"""Renders pages of a very small Markdown: headings, paragraphs and links."""

import html
import os
import re
import sys
from pathlib import Path

source, target = map(Path, sys.argv[1:])
target.mkdir(parents=True)
for page in sorted(source.glob("*.md")):
    body = []
    for block in page.read_text().replace("@PRICE_NOTE@", os.environ["PRICE_NOTE"]).split("\n\n"):
        text = re.sub(r"\[([^]]+)\]\(([^)]+)\.md\)", r'<a href="\2.html">\1</a>', html.escape(block.strip(), quote=False))
        body.append(f"<h1>{text[2:]}</h1>" if text.startswith("# ") else f"<p>{text}</p>")
    head = f"<!doctype html>\n<title>{page.stem}: {os.environ['SITE_TITLE']}</title>\n"
    (target / f"{page.stem}.html").write_text(head + "\n".join(body) + "\n")
