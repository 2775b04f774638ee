"""The documentation lists every field of projects and groups that is honoured, ignored or refused."""

from pathlib import Path

import msgspec
import pytest

from remuda.cell.http.gitlab.groups import GroupChange, NewGroup
from remuda.cell.http.gitlab.project_fields import UNSUPPORTED_OF_GROUP, UNSUPPORTED_OF_PROJECT
from remuda.cell.http.gitlab.projects import NewProject, ProjectChange

PAGE = (Path(__file__).parents[5] / "docs" / "reference" / "http.md").read_text()


@pytest.mark.parametrize("rules", [UNSUPPORTED_OF_PROJECT, UNSUPPORTED_OF_GROUP])
def test_the_page_lists_unsupported_fields(rules: object) -> None:
    names = {*getattr(rules, "ignored", ()), *getattr(rules, "refused", ())}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("kind", [NewProject, ProjectChange, NewGroup, GroupChange])
def test_no_field_is_both_honoured_and_unsupported(kind: type[msgspec.Struct]) -> None:
    rules = kind.unsupported  # type: ignore[attr-defined]
    assert not {field.name for field in msgspec.structs.fields(kind)} & {*rules.ignored, *rules.refused}
    assert not rules.ignored.keys() & rules.refused.keys()
