"""The line numbers of keys in a TOML file."""

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from remuda.manager.config.lines import find_lines, line_of

TEXT = '''# one
concurrent = 1
[[runners]]
  name = "a # [b]"
  "limit" = 2
  script = """
limit = 5
[runners.cache]
"""
  list = [ "x", # ]
    "y = 1",
    { z = 1 },
  ]
  docker.image = "alpine"
  [runners.labels]
    zone = 'b'
  [[runners.docker.services]]
    name = "redis"
[[runners]]
  name = "second"
  inline = { deep = { er = 1 } }
'''


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("concurrent", 2),
        ("runners[0]", 3),
        ("runners", 3),
        ("runners[0].name", 4),
        ("runners[0].limit", 5),
        ("runners[0].script", 6),
        ("runners[0].list", 10),
        ("runners[0].list[2]", 10),
        ("runners[0].docker.image", 14),
        ("runners[0].labels", 15),
        ("runners[0].labels.zone", 16),
        ("runners[0].docker.services[0].name", 18),
        ("runners[1].name", 20),
        ("runners[1].inline.deep.er", 21),
        ("runners[1].token", 19),
        ("nothing", None),
        ("", None),
    ],
)
def test_the_line_of_a_key(where: str, line: int | None) -> None:
    assert line_of(where, find_lines(TEXT)) == line


names = st.text("abcdefgh_", min_size=1, max_size=6)
values = st.one_of(st.integers(), st.text(max_size=30), st.lists(st.text(max_size=10), max_size=3), st.booleans())


@given(st.lists(st.dictionaries(names, values, min_size=1, max_size=5), min_size=1, max_size=4))
def test_every_key_is_found_where_it_is_written(sections: list[dict[str, object]]) -> None:
    text = tomlkit.dumps({"runners": sections})
    lines = find_lines(text)
    for number, section in enumerate(sections):
        for key in section:
            assert text.split("\n")[lines[f"runners[{number}].{key}"] - 1].startswith(key)
