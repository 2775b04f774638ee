"""Pages about editor."""

from remuda.cell.web.visit import Pages

pages = Pages()
