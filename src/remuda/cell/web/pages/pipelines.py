"""Pages about pipelines."""

from remuda.cell.web.visit import Pages

pages = Pages()
