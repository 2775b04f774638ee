"""Pages about settings."""

from remuda.cell.web.visit import Pages

pages = Pages()
