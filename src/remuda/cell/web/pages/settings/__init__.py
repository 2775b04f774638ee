"""The settings of projects and groups, one module for each subject. `frame` says which sections there are, and who sees
them."""

from itertools import chain

from remuda.cell.web.pages.settings import access, automation, deployments, general, hooks
from remuda.cell.web.visit import Page

pages: tuple[Page, ...] = tuple(chain(general.pages, access.pages, automation.pages, hooks.pages, deployments.pages))
