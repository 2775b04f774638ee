from remuda.cell.web.diffs import Row, parse_rows, read_files

DIFF = "@@ -3,2 +3,3 @@ def f():\n same\n-old\n+new\n+more\n\\ No newline at end of file\n"


def test_rows_have_the_numbers_of_both_files() -> None:
    assert list(parse_rows(DIFF)) == [
        Row("place", None, None, "@@ -3,2 +3,3 @@ def f():"),
        Row("same", 3, 3, "same"),
        Row("removed", 4, None, "old"),
        Row("added", None, 4, "new"),
        Row("added", None, 5, "more"),
        Row("note", None, None, "No newline at end of file"),
    ]


def test_only_a_newline_ends_a_line() -> None:
    assert [row.text for row in parse_rows("@@ -1 +1 @@\n+a\u2028b\x0cc\r\n")][1:] == ["a\u2028b\x0cc\r"]


def test_no_diff_has_no_rows() -> None:
    assert list(parse_rows("")) == []
    assert list(parse_rows("Binary files a/x and b/x differ\n")) == [
        Row("note", None, None, "Binary files a/x and b/x differ")
    ]


def test_files_together_have_a_limit() -> None:
    first, second = read_files([{"diff": DIFF}, {"diff": DIFF}], most_rows=8)
    assert (len(first.rows), first.is_cut, first.added, first.removed) == (6, False, 2, 1)
    assert (len(second.rows), second.is_cut, second.added, second.removed) == (2, True, 2, 1)
