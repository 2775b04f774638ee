"""Pages about admin."""

from remuda.cell.web.visit import Pages

pages = Pages()
