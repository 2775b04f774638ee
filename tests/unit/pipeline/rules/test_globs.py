import time

import pytest

from remuda.pipeline.rules.globs import Glob, match_paths, normal_path


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.txt", "a.txt", True),
        ("/a.txt", "a.txt", True),
        ("./a.txt", "a.txt", True),
        ("a.txt", "b/a.txt", False),
        ("*.md", "a.md", True),
        ("*.md", "d/a.md", False),
        ("*", ".hidden", True),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("docs/**/*", "docs/a", True),
        ("docs/**/*", "docs/a/b/c", True),
        ("docs/**", "docs", False),
        ("docs/**", "docs/a/b", True),
        ("**/x/**/y", "a/x/b/c/y", True),
        ("**/x/**/y", "a/x", False),
        ("*.{rb,py}", "a.py", True),
        ("{a,b}/{c,d}", "b/c", True),
        ("[a-c]?.txt", "bz.txt", True),
        ("[!a]b", "cb", True),
        ("[!a]b", "ab", False),
        ("[", "[", True),
        ("a*b*c", "aXbYbZc", True),
        ("*.log", "x.log.log", True),
        ("a+b(1)*", "a+b(1)x", True),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).fits(path) is expected


@pytest.mark.parametrize(
    ("text", "path"),
    [("a/b", "a/b"), ("/a//b/", "a/b"), ("a/./b/../c", "a/c"), ("..", None), ("a/../../b", None), ("", "")],
)
def test_normal_path(text: str, path: str | None) -> None:
    assert normal_path(text) == path


def test_matching_keeps_the_order_of_paths() -> None:
    assert match_paths(["*.b", "a.*"], ["z.b", "a.a", "c.c"]) == ["z.b", "a.a"]


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 50 + "x", "{a,b}" * 200, "?" * 1000 + "*" * 1000])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    assert not Glob(pattern).fits("a" * 300 + "/" + "a/" * 100 + "a")
    assert time.process_time() - began < 0.5
