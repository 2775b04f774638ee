"""Pages about repository."""

from remuda.cell.web.visit import Pages

pages = Pages()
