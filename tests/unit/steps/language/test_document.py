import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.errors import DefinitionError
from remuda.steps.language.document import DocumentError, Node, read_documents


@pytest.fixture(params=["with libyaml", "pure"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with and without libyaml: the packed agent has PyYAML without its C part."""
    if request.param == "pure":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def read_plain(text: str) -> list[object]:
    return [document.plain() for document in read_documents(text)]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("2024-01-02", "2024-01-02"),
        ("12:30:45", "12:30:45"),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 15),
        ("0b101", 5),
        ("08", 8),
        ("-0x10", -16),
        ("1_000", 1000),
        ("1.10", 1.1),
        (".5", 0.5),
        ("1e3", 1000),
        ("+7", 7),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ('"5"', "5"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
        ("!!float 5", 5),
        ("! 5", "5"),
        ("é", "é"),
    ],
)
def test_types_of_scalars(written: str, value: object) -> None:
    if written == "-":
        written = '"-"'
    (document,) = read_plain(f"a: {written}")
    assert document == {"a": value}
    assert isinstance(document, dict)
    assert type(document["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: {c: 1,\n c: 2}", 3, '"c" appears twice'),
        ('{"a": 1,\n "a": 2}', 2, '"a" appears twice'),
        ("a: 1\nb: *c", 2, r'alias "\*c" has no anchor|undefined alias'),
        ("a: 1\n? [b]\n: c", 2, "a key must be a string"),
        ("a: 1\nb: !!binary aGk=", 2, "tag"),
        ("a: 1\nb: !mine {}", 2, "tag"),
        ("a: 1\nb: !!int x", 2, "does not fit"),
        ("a: 1\nb: .nan", 2, "not a number"),
        ("a: 1\nb: 1e999", 2, "out of range"),
        ("a: 1\nb: " + "9" * 5000, 2, "out of range"),
        ("a: 1\nb: [", 2, "invalid YAML"),
        ("a: 1\n\tb: 2", 2, "invalid YAML"),
        ("a: 1\nb: \x07", 2, "invalid YAML"),
        ("a: 1\nb: \0", 2, "NUL"),
        ('{"a":\n"\\u0000"}', 1, "NUL"),
        ('{\n"a": "\\ud800"}', 2, "half a surrogate pair"),
        ("a: 1\n<<: [1]", 2, "only mappings can be merged"),
        ("[" * 200 + "]" * 200, 1, "levels of nesting"),
        ('{"a":' * 5000 + "1" + "}" * 5000, 1, "levels of nesting|invalid YAML"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem) as caught:
        read_documents(text)
    assert caught.value.line == line


def test_exponential_aliases_are_refused() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    with pytest.raises(DocumentError, match="more than"):
        read_documents(f"l0: &l0 [x]\n{levels}")


def test_anchors_and_merge_keys() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [{x: 5}, *a]}\nd: *a\n"
    (document,) = read_plain(text)
    assert document == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 5, "y": 2}, "d": {"x": 1, "y": 2}}


def test_carriage_returns_and_byte_order_mark() -> None:
    assert read_plain("\ufeffspec: {}\r\n---\r\na: |\r\n  x\r\n  y\r\n") == [{"spec": {}}, {"a": "x\ny\n"}]


@pytest.mark.parametrize("first", ["", "\n", "---\n", "---\n\n", "{}\n", "null\n"])
def test_an_empty_first_document(first: str) -> None:
    for body in ("a: 1", '{"a": 1}'):
        documents = read_plain(f"{first}---\n{body}")
        assert len(documents) == 2
        assert documents[0] in (None, {})
        assert documents[1] == {"a": 1}


def test_lines_of_yaml_and_json_are_the_same() -> None:
    text = '{}\n---\n{"a": [\n  1,\n  {"b": "x:y,{[",\n   "c": [[]]}],\n\n "d": 1.10}\n---\nignored: ['
    from_json = read_documents(text)[1]
    from_yaml = read_documents(text.replace('"a"', "a"))[1]
    expected = {
        "": 3,
        ".a": 3,
        ".a[0]": 4,
        ".a[1]": 5,
        ".a[1].b": 5,
        ".a[1].c": 6,
        ".a[1].c[0]": 6,
        ".d": 8,
    }
    assert dict(list_lines(from_json)) == dict(list_lines(from_yaml)) == expected
    assert isinstance(from_json.value, dict)
    assert from_json.value["d"].written == "1.10"


def test_line_numbers_of_json_in_one_line() -> None:
    assert [document.line for document in read_documents('\n{}\n---\n\n{"a": 1}')] == [2, 5]
    assert [document.line for document in read_documents('# one\n  # two\n{}\n---\n{"a": 1}')] == [3, 5]


def list_lines(node: Node, path: str = "") -> list[tuple[str, int]]:
    lines = [(path, node.line)]
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            lines += list_lines(child, f"{path}.{key}")
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            lines += list_lines(child, f"{path}[{index}]")
    return lines


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[]), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@given(st.text(alphabet=" \n\t-:,{}[]&*!|>'\"%@`#?~<ab1.\\", max_size=40))
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


def read_or_refuse(text: str) -> None:
    with contextlib.suppress(DefinitionError):
        for document in read_documents(text):
            document.plain()
