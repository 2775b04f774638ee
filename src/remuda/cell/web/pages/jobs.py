"""Pages about jobs."""

from remuda.cell.web.visit import Pages

pages = Pages()
