"""Pages about profile."""

from remuda.cell.web.visit import Pages

pages = Pages()
