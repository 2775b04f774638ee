"""Merging of maps, `extends` and `!reference`, compared with a plain model of nested dicts."""

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline.errors import Report
from remuda.pipeline.syntax.extends import dereference, extend
from remuda.pipeline.syntax.tree import Merger, Table, plain
from remuda.pipeline.syntax.yaml_document import read_document

KEYS = st.sampled_from(["a", "b", "c", "d"])
LEAVES = st.sampled_from(["x", "y", "z"]) | st.lists(st.sampled_from(["x", "y"]), max_size=2)
MAPS = st.dictionaries(KEYS, st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=5))

type_of_map = dict[str, object]


def overlay(under: type_of_map, over: type_of_map) -> type_of_map:
    result = dict(under)
    for key, value in over.items():
        base = result.get(key)
        result[key] = overlay(base, value) if isinstance(base, dict) and isinstance(value, dict) else value
    return result


def read(tree: object) -> tuple[Report, Table]:
    report = Report("f")
    body = read_document(yaml.safe_dump(tree), report).body
    assert isinstance(body, Table)
    return report, body


@settings(max_examples=200, deadline=None)
@given(st.lists(MAPS, min_size=1, max_size=4))
def test_maps_are_merged_and_all_else_is_replaced(maps: list[type_of_map]) -> None:
    report, body = read({f"m{index}": each for index, each in enumerate(maps)})
    tables = [entry.value for entry in body.entries.values()]
    merged = Merger(report).merge(*(table for table in tables if isinstance(table, Table)))
    expected: type_of_map = {}
    for each in maps:
        expected = overlay(expected, each)
    assert plain(merged) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(MAPS, st.lists(st.integers(0, 5), max_size=3)), min_size=1, max_size=6))
def test_a_template_has_what_its_parents_have(templates: list[tuple[type_of_map, list[int]]]) -> None:
    tree: dict[str, type_of_map] = {}
    expected: dict[str, type_of_map] = {}
    for index, (own, parent_indexes) in enumerate(templates):
        parents = [f".t{each}" for each in dict.fromkeys(parent_indexes) if each < index]
        tree[f".t{index}"] = {**own, "extends": parents} if parents else own
        result: type_of_map = {}
        for parent in parents:
            result = overlay(result, expected[parent])
        expected[f".t{index}"] = overlay(result, tree[f".t{index}"])
    report, body = read(tree)
    assert plain(extend(report, body, Merger(report))) == expected
    report.finish()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from("xyz")), min_size=1, max_size=6))
def test_references_are_replaced_by_what_they_name(lists: list[tuple[list[int], str]]) -> None:
    lines: list[str] = []
    expected: dict[str, list[object]] = {}
    for index, (reference_indexes, own) in enumerate(lists):
        names = [each for each in reference_indexes if each < index]
        items = [f"!reference [.l{each}, script]" for each in names] + [own]
        lines.append(f".l{index}: {{script: [{', '.join(items)}]}}\n")
        expected[f".l{index}"] = [*(expected[f".l{each}"] for each in names), own]
    report = Report("f")
    body = read_document("".join(lines), report).body
    assert isinstance(body, Table)
    result = plain(dereference(report, body))
    report.finish()
    assert result == {name: {"script": script} for name, script in expected.items()}


def test_extend_does_not_change_its_input() -> None:
    report, body = read({"base": {"v": {"a": "1"}}, "x": {"extends": "base", "v": {"b": "2"}}})
    before = msgspec.json.encode(body)
    extend(report, body, Merger(report))
    assert msgspec.json.encode(body) == before
