from dataclasses import fields
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from remuda.cli.options import PipelineArguments
from remuda.cli.run import RunArguments
from remuda.localrun.settings.keys import all_keys

USER_ONLY = {
    *("secrets-file", "project", "server", "allow-fetch", "allow-remote", "templates"),
    *("cache-dir", "data", "shell-on-failure", "isolation", "containers"),
}
"""Keys with which a foreign repository could read other folders, reach the network, or weaken the isolation of jobs."""


def option_names() -> set[str]:
    """The names on the command line of all options of `remuda run`, without dashes."""
    names = set()
    for arguments in (PipelineArguments, RunArguments):
        hints = get_type_hints(arguments, include_extras=True)
        for field in fields(arguments):
            parameters = get_args(hints[field.name])[1:] if get_origin(hints[field.name]) is Annotated else ()
            written = [name for each in parameters for name in (each.name or ()) if name.startswith("--")]
            names.add(written[0].removeprefix("--") if written else field.name.replace("_", "-"))
    return names


def test_every_option_of_the_command_line_is_a_key_under_its_name() -> None:
    # --no-containers is another way to write --containers never.
    assert set(all_keys()) == option_names() - {"no-containers"}


def test_only_the_users_own_file_may_set_what_gives_a_repository_more_than_its_pipeline_file() -> None:
    unsafe = {key.name for key in all_keys().values() if not key.is_safe}
    assert unsafe >= USER_ONLY
    assert "jobs" not in unsafe


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("jobs", 3, 3),
        ("logs", True, True),
        ("output", "json", "json"),
        ("variable", ["A=1"], ("A=1",)),
        ("variable", {"A": "1", "B": "x=y"}, ("A=1", "B=x=y")),
    ],
)
def test_values_are_read_by_the_type_of_the_option(name: str, value: object, expected: object) -> None:
    assert all_keys()[name].read(value) == expected


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("jobs", "3", "a number"),
        ("jobs", True, "a number"),
        ("logs", 1, "true or false"),
        ("output", "xml", "one of: text, json"),
        ("variable", "A=1", "a list of texts"),
        ("variable", {"A": 1}, "a list of texts"),
        ("variables-file", {"A": "x"}, "a list of paths"),
        ("cache-dir", 1, "a path, written as text"),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: object, kind: str) -> None:
    key = all_keys()[name]
    with pytest.raises(TypeError):
        key.read(value)
    assert key.describe_kind() == kind
