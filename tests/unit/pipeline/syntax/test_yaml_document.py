import pytest

from remuda.pipeline.errors import PipelineError, Report
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table
from remuda.pipeline.syntax.yaml_document import MAX_BYTES, MAX_DEPTH, read_document


def read(text: str) -> Node:
    report = Report("f")
    node = read_document(text, report).body
    report.finish()
    return node


def plain(node: Node) -> object:
    """Convert a tree to dicts, lists and the texts as written."""
    match node:
        case Table():
            return {key: plain(entry.value) for key, entry in node.entries.items()}
        case Items():
            return [plain(item) for item in node.items]
        case Scalar():
            return node.text
        case _:
            return None


def mistake(text: str) -> str:
    with pytest.raises(PipelineError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hello", "text"),
        ('"1"', "text"),
        ("'yes'", "text"),
        ("1.2.3", "text"),
        ("2024-01-02", "text"),
        ("y", "text"),
        ("!!str 5", "text"),
        ("! 5", "text"),
        ("1", "number"),
        ("-1.50", "number"),
        ("1_000", "number"),
        ("0x1F", "number"),
        ("1e3", "number"),
        (".5", "number"),
        (".inf", "number"),
        ("true", "true"),
        ("Yes", "true"),
        ("ON", "true"),
        ("off", "false"),
        ("No", "false"),
        ("false", "false"),
    ],
)
def test_kinds_of_scalars(text: str, kind: str) -> None:
    node = read(text)
    assert isinstance(node, Scalar)
    assert node.kind == kind


@pytest.mark.parametrize("text", ["~", "null", "NULL", ""])
def test_null_values(text: str) -> None:
    node = read(f"[{text or '!!null '}]")
    assert isinstance(node, Items)
    assert isinstance(node.items[0], Scalar)
    assert node.items[0].kind == "null"


def test_places_count_from_one_and_in_characters() -> None:
    node = read("ä:\n  - ö: ü\n")
    assert isinstance(node, Table)
    items = node.entries["ä"].value
    assert isinstance(items, Items)
    assert isinstance(items.items[0], Table)
    inner = items.items[0].entries["ö"]
    assert (inner.key.line, inner.key.column) == (2, 5)
    assert (inner.value.line, inner.value.column) == (2, 8)


def test_a_byte_order_mark_and_carriage_returns_are_ignored() -> None:
    assert plain(read("\ufeffa: 1\r\nb: 2\r\n")) == {"a": "1", "b": "2"}


def test_an_alias_has_the_place_of_its_anchor() -> None:
    node = read("a: &x\n  - 1\nb: *x\n")
    assert isinstance(node, Table)
    assert node.entries["b"].value is node.entries["a"].value


def test_merge_keys() -> None:
    text = """
        a: &a {x: 1, y: 1}
        b: &b {y: 2, z: 2}
        first: {<<: *a, x: own}
        list: {<<: [*a, *b]}
        twice: {<<: *a, <<: *b}
        inline: {<<: {q: 1}}
    """
    node = plain(read(text))
    assert isinstance(node, dict)
    assert node["first"] == {"x": "own", "y": "1"}
    assert node["list"] == {"x": "1", "y": "1", "z": "2"}
    assert node["twice"] == {"x": "1", "y": "2", "z": "2"}
    assert node["inline"] == {"q": "1"}


def warnings(text: str) -> list[str]:
    report = Report("f")
    read_document(text, report)
    report.finish()
    return [str(warning) for warning in report.warnings()]


def test_later_entries_win_even_if_they_are_merged() -> None:
    text = "[&a {x: 1},\n {x: own,\n  <<: *a}]"
    assert plain(read(text)) == [{"x": "1"}, {"x": "1"}]
    [warning] = warnings(text)
    assert warning.startswith('f:3:3: <<: replaces "x" of line 2, because it comes later')


def test_a_merge_that_repeats_values_causes_no_warning() -> None:
    assert warnings("[&a {x: 1, y: [1]}, {x: 1, <<: *a, y: own}, {<<: *a, <<: *a}]") == []


def test_the_last_of_two_equal_keys_wins_with_a_warning() -> None:
    text = "a: 1\nb: {c: 1}\na: 2\na: 3\n"
    assert plain(read(text)) == {"a": "3", "b": {"c": "1"}}
    assert warnings(text) == [
        'f:3:1: a: the key "a" is on lines 1 and 3; only the last one counts; remove one of them',
        'f:4:1: a: the key "a" is on lines 3 and 4; only the last one counts; remove one of them',
    ]


def test_a_repeated_key_inside_an_anchor_is_warned_of_once() -> None:
    text = "x: &x {a: 1, a: 2}\ny: *x\nz: {<<: *x}\n"
    assert plain(read(text)) == {"x": {"a": "2"}, "y": {"a": "2"}, "z": {"a": "2"}}
    assert len(warnings(text)) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f:1:1: the file is empty"),
        ("# only a comment\n", "f:1:1: the file is empty"),
        ("---\n", "f:1:1: the file is empty"),
        ("a:\n\tb: 1\n", "f:2:1: broken YAML: found character that cannot start any token"),
        ("a: [1\nb: 2\n", "f:2:2: broken YAML: did not find expected ',' or ']'"),
        ("a: 'b\n", "found unexpected end of stream while scanning a quoted scalar that starts on line 1"),
        ("a: b: c\n", "f:1:5: broken YAML: mapping values are not allowed in this context"),
        ("a: *b\n", "f:1:4: the alias *b has no anchor before it"),
        ("a: &a [*a]\n", "f:1:8: the alias *a refers to the value it stands in"),
        ("a: {<<: 1}\n", "f:1:5: <<: << must name a map or a list of maps"),
        ("[a]: b\n", "f:1:1: a key must be text, not a list or a map"),
        ("a: !reference b\n", "f:1:4: !reference: must be a list of names"),
        ("a: !reference {b: c}\n", "f:1:4: !reference: must be a list of names"),
        ("a: !reference []\n", "f:1:4: !reference: must be a list of names"),
        ("a: !reference [[b]]\n", "f:1:4: !reference: must be a list of names"),
        ("a: !secret b\n", 'f:1:4: unknown YAML tag "!secret"'),
        ("a: !!binary b\n", 'f:1:4: unknown YAML tag "!!binary"'),
        ("spec: {}\n---\nb: 2\n---\nc: 3\n", "f:5:1: the file has more than one YAML document after its header"),
        ("spec: {inputs: {}}\n---\n", "f:1:1: the file is empty"),
        ("a: b\x07\n", "f:1:5: broken YAML: the character U+0007 is not allowed"),
        ("a: 1\nb: \ud800\n", "f:2:4: broken YAML: the character U+D800 is not allowed"),
    ],
)
def test_mistakes(text: str, expected: str) -> None:
    assert expected in mistake(text)


def test_tabs_get_their_own_advice() -> None:
    assert "indent with spaces, not with tabs" in mistake("a:\n  b:\n    - c\n\t- d\n")


def test_several_mistakes_of_the_tree_are_reported_together() -> None:
    lines = mistake("a: *e\nb: *c\nd: !reference x\n").splitlines()
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "- " * 100_000,
        "{a: " * 100_000,
        "? " * 100_000,
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, MAX_DEPTH + 1)),
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert "nested deeper than 100 levels" in mistake(text)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert isinstance(read("[" * MAX_DEPTH + "]" * MAX_DEPTH), Items)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20)),
        "a0: &a0 {x: y}\n" + "".join(f"a{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}}}\n" for i in range(1, 60)),
        "a: &a {"
        + ", ".join(f"k{i}: 1" for i in range(1000))
        + "}\n"
        + "".join(f"b{i}: {{<<: *a}}\n" for i in range(99)),
        "- x\n" * 100_001,
    ],
    ids=["lists", "maps", "merges", "plain"],
)
def test_too_many_values_are_refused(text: str) -> None:
    assert "more than 100000 values" in mistake(text)


def test_a_large_file_is_refused_by_its_bytes() -> None:
    assert "larger than 1048576 bytes" in mistake("#" + "ä" * (MAX_BYTES // 2))
    assert "the file is empty" in mistake("#" * MAX_BYTES)
