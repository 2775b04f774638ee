"""Pages about groups."""

from remuda.cell.web.visit import Pages

pages = Pages()
