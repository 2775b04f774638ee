"""Writes a pipeline file with everything it includes, extends and refers to as one YAML text.

Parsing the text gives the same values: text that looks like another type is quoted, numbers keep their spelling. As in
GitLab's `merged_yaml`, templates, `extends` and `default` stay in the text, and compiling it gives the same jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from remuda.pipeline.compile import read_tree
from remuda.pipeline.errors import Place, Report
from remuda.pipeline.facts import Facts
from remuda.pipeline.include.port import MemorySources, Sources
from remuda.pipeline.rules.clauses import Judge
from remuda.pipeline.rules.regex import TooCostlyError
from remuda.pipeline.syntax.tree import Items, Node, Scalar, Table
from remuda.pipeline.syntax.yaml_document import kind_of

if TYPE_CHECKING:
    import yaml

MAX_CHARACTERS = 20_000_000

_NO_FOLDING = 1 << 30


def merge_yaml(
    text: str,
    *,
    file: str = ".gitlab-ci.yml",
    facts: Facts | None = None,
    sources: Sources | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> str:
    """Return the merged file as YAML text. Takes the arguments of `compile_pipeline`. Raises `PipelineError` if files
    cannot be merged; does not check jobs."""
    report = Report(file)
    try:
        sources = sources or MemorySources()
        root = read_tree(report, Judge(report, facts or Facts(), sources), text, sources, inputs or {})
    except TooCostlyError:
        report.stop(Place(), "", "the regular expressions take too long to evaluate", "use simpler or fewer ones")
    report.finish()
    return _Writer(report).text(root)


class _Writer:
    """Writes YAML text and limits its size. A value that many jobs share is written, and counted, once for each job."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._characters = 0

    def text(self, root: Table) -> str:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text: str = yaml.emit(self._stream(root), Dumper=dumper, allow_unicode=True, width=_NO_FOLDING)
        return text

    def _stream(self, root: Table) -> Iterator[yaml.Event]:
        import yaml

        yield yaml.StreamStartEvent()
        yield yaml.DocumentStartEvent(explicit=True)
        yield from self._events(root)
        yield yaml.DocumentEndEvent(explicit=False)
        yield yaml.StreamEndEvent()

    def _events(self, node: Node) -> Iterator[yaml.Event]:
        import yaml

        match node:
            case Table():
                yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=not node.entries)
                for entry in node.entries.values():
                    yield self._scalar(entry.key)
                    yield from self._events(entry.value)
                yield yaml.MappingEndEvent()
            case Items():
                yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=not node.items)
                for item in node.items:
                    yield from self._events(item)
                yield yaml.SequenceEndEvent()
            case Scalar():
                yield self._scalar(node)
            case _:
                # `report.finish` has raised for mistakes, and `dereference` has replaced references.
                raise AssertionError(type(node).__name__)

    def _scalar(self, node: Scalar) -> yaml.Event:
        import yaml

        self._characters += len(node.text)
        if self._characters > MAX_CHARACTERS:
            message = f"with everything written out the file has more than {MAX_CHARACTERS} characters"
            self._report.stop(node, "", message, "use fewer references and templates")
        if node.kind != "text":
            return yaml.ScalarEvent(None, None, (True, False), "null" if node.kind == "null" else node.text)
        # Unquoted, `<<` would merge, and `=` is special to some YAML parsers.
        plain = kind_of(node.text) == "text" and node.text not in ("<<", "=")
        style = "|" if "\n" in node.text.strip("\n") else None
        return yaml.ScalarEvent(None, None, (plain, True), node.text, style=style)
