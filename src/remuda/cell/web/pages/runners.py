"""Pages about runners."""

from remuda.cell.web.visit import Pages

pages = Pages()
