"""Converts pages of the documentation to scripts that follow the page literally, and finds blocks that nothing runs.

A block of `sh` is executed. A block of another language is a file: its name stands in backticks at the end of the text
before it, followed by a colon, or in a comment. Blocks of `text` are output, and are left alone. Comments say the rest;
readers do not see them:

    <!-- file: NAME -->         write the block below to this file
    <!-- add to: NAME -->       append the block below to this file
    <!-- terminal: NAME -->     execute the commands below in a second terminal, which is called NAME
    <!-- exit code: 2 -->       the commands below end with this exit code
    <!-- output -->             the block of `text` below is what the commands before it print; `...` is any text
    <!-- not run: REASON -->    do not execute the block below
    <!-- run: COMMANDS -->      execute these commands, too: what the reader has to do, or a check of what was shown

`tests/integration/docs/test_pages.py` executes the pages; `problems_of` is what `tools/check_docs.py` reports.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

OWN_TESTS = {
    "install": ("tests/system/test_install.py",),
    "write-a-plugin": (
        "tests/integration/docs/test_write_a_plugin.py",
        "tests/interop/test_write_a_plugin.py",
    ),
}
"""Pages that tests of their own execute, with these tests."""
NOT_RUN = "tests/integration/docs/not_run.txt"
_PART = re.compile(
    r"^<!-- (?P<kind>file|add to|terminal|exit code|output|not run|run)(?::\s(?P<value>.*?))?\s-->\n"
    r"|^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"`([\w./-]+\.\w+)`(?=[^`]*:\s*\Z)")
_COMMENT = re.compile(r"^<!--.*?-->", re.MULTILINE | re.DOTALL)
_LOOKS_LIKE_COMMANDS = re.compile(r"^(\$ |# )?(remuda|git|curl|systemctl|apt|pip|sudo) [a-z/-]", re.MULTILINE)


def executed_pages(root: Path) -> list[Path]:
    """Return the pages of the repository `root` whose commands tests execute."""
    return [root / "docs/tutorial.md", *sorted((root / "docs/how-to").glob("*.md"))]


def problems_of_pages(root: Path) -> Iterator[str]:
    """Yield what is wrong with the blocks of all such pages, each with page and line."""
    counts = dict[str, int]()
    for line in (root / NOT_RUN).read_text().splitlines():
        if line and not line.startswith("#"):
            count, name = line.split()
            counts[name] = int(count)
    for page in executed_pages(root):
        name = str(page.relative_to(root))
        for problem in problems_of(page.read_text(), not_run=counts.pop(name, 0)):
            yield f"{name}:{problem}"
        for test in OWN_TESTS.get(page.stem, ()):
            if name.rpartition("/")[2] not in (root / test).read_text():
                yield f"{name}:1: {test} does not execute this page"
    for name in counts:
        yield f"{NOT_RUN}: there is no page {name}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page, or the commands of a `run` comment (`kind` is `run`, without a language)."""

    line: int
    language: str
    text: str
    kind: str = ""
    """Kind of the comment before the block; empty without one."""
    value: str = ""

    @property
    def is_executed(self) -> bool:
        if self.kind == "run" or self.language == "sh":
            return self.kind != "not run"
        return self.kind in ("file", "add to", "output")


def read_blocks(page: str) -> list[Block]:
    """Return all blocks of a page in their order, with the commands of `run` comments between them."""
    blocks = []
    kind = value = ""
    end = 0
    for part in _PART.finditer(page):
        line = page.count("\n", 0, part.start()) + 1
        if part["kind"] == "run":
            blocks.append(Block(line=line, language="", text=f"{part['value']}\n", kind="run"))
        elif part["kind"]:
            kind, value = part["kind"], part["value"] or ""
            end = part.end()
            continue
        else:
            text = "".join(row.removeprefix(part["indent"]) for row in part["text"].splitlines(keepends=True))
            name = _FILE.search(_COMMENT.sub("", page[end : part.start()]))
            if not kind and name is not None and part["language"] not in ("sh", "text"):
                kind, value = "file", name[1]
            blocks.append(Block(line=line, language=part["language"], text=text, kind=kind, value=value))
        kind, value, end = "", "", part.end()
    return blocks


def script_of(page: str, name: str = "") -> str:
    """A bash script with the commands and files of the page, in their order. `name`: begins the marks that say on
    stderr which line of the page follows; empty for no marks."""
    lines = []
    blocks = [block for block in read_blocks(page) if block.is_executed]
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if name:
            lines.append(f"echo '== {name}:{block.line}' >&2")
        is_compared = following is not None and following.kind == "output"
        lines.append(_commands_of(block, is_compared=is_compared))
    return "\n".join(lines)


def _commands_of(block: Block, *, is_compared: bool) -> str:
    document = f"<<'END OF BLOCK'\n{block.text}END OF BLOCK\n"
    match block.kind:
        case "file" | "add to":
            target = shlex.quote(block.value)
            return f'mkdir -p "$(dirname {target})"\ncat {">" if block.kind == "file" else ">>"} {target} {document}'
        case "terminal":
            return f"in_terminal {shlex.quote(block.value)} {document}"
        case "output":
            return f"compare_output {document}"
        case "exit code":
            commands = f"set +e\n(set -e\n{block.text})\ncode=$?\nset -e\n"
            check = f"expect_exit_code {int(block.value)} $code\n"
        case _:
            commands, check = block.text, ""
    # The commands stay in the page's shell: `cd` and variables count for the blocks below.
    return f"begin_output\n{commands}end_output\n{check}" if is_compared else f"{commands}{check}"


def problems_of(page: str, *, not_run: int) -> Iterator[str]:
    """Yield what is wrong with the blocks of a page, each with its line. `not_run`: how many may be marked so."""
    blocks = read_blocks(page)
    for number, block in enumerate(blocks):
        if problem := _problem_of(block, blocks[number + 1 :]):
            yield f"{block.line}: {problem}"
    if not any(block.is_executed for block in blocks):
        yield "1: no block of this page is executed"
    count = sum(block.kind == "not run" for block in blocks)
    if count != not_run:
        yield f"1: {count} blocks are marked `not run`, and tests/integration/docs/not_run.txt counts {not_run}"


def _problem_of(block: Block, later: Sequence[Block]) -> str:
    if block.kind == "not run":
        return "" if len(block.value.split()) >= 3 else "say why the block is not run: <!-- not run: REASON -->"
    if block.kind == "run":
        return ""
    if not block.language:
        return "name the language of the block; `text` is for output"
    if block.language == "text":
        if block.kind != "output" and _LOOKS_LIKE_COMMANDS.search(block.text):
            return "looks like commands: make it a block of `sh`"
        return ""
    if block.language in ("bash", "shell", "console", "shell-session"):
        return "commands are in blocks of `sh`, without a prompt"
    if not block.is_executed:
        return f"nothing executes this {block.language}: name its file (<!-- file: NAME -->), or say why it is not run"
    if block.kind == "exit code" and not block.value.isdecimal():
        return f"exit code {block.value}: must be a number"
    is_source = block.language in ("go", "python")
    if (
        block.kind in ("file", "add to")
        and not is_source
        and not any(_reads(command, block.value) for command in later)
    ):
        return f"nothing reads {block.value}: add <!-- run: COMMAND {block.value} -->"
    return ""


def _reads(block: Block, name: str) -> bool:
    """True if the commands of the block name the file, or its folder."""
    if block.language != "sh" and block.kind != "run":
        return False
    folder, _, last = name.rpartition("/")
    return block.is_executed and (last in block.text or (bool(folder) and folder in block.text))
