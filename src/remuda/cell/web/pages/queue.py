"""Pages about queue."""

from remuda.cell.web.visit import Pages

pages = Pages()
