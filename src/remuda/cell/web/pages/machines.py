"""Pages about machines."""

from remuda.cell.web.visit import Pages

pages = Pages()
