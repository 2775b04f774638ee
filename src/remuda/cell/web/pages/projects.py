"""Pages about projects."""

from remuda.cell.web.visit import Pages

pages = Pages()
