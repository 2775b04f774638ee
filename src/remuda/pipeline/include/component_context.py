"""`$[[ component.name ]]` and so on: what a CI/CD component can say about itself if its header has `spec:component`."""

from __future__ import annotations

import msgspec

from remuda.pipeline.errors import quote
from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.syntax.known_keys import nearest

FIELDS = ("name", "sha", "version", "reference")


class ComponentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a component by name, None for a file that is not a component; and those that its header lists."""

    values: dict[str, str] | None = None
    listed: tuple[str, ...] = ()

    def read(self, field: str) -> str | SourceProblem:
        """Return the value of a field, empty if it has none; or the reason why the file cannot use it."""
        if self.values is None:
            return SourceProblem(
                reason="this file is not included as a component", suggestion="include it with include:component"
            )
        if field not in FIELDS:
            suggestion = nearest(field, FIELDS) or f"use one of: {', '.join(FIELDS)}"
            return SourceProblem(reason=f"a component has no {quote(field)}", suggestion=suggestion)
        if field not in self.listed:
            reason = f"the header does not name the component's {quote(field)}"
            return SourceProblem(
                reason=reason, suggestion=f"write spec: component: [{', '.join((*self.listed, field))}]"
            )
        return self.values[field]
