"""Check names, docstrings and folders of src/remuda.

Refuses: docstrings of four words or fewer, sentences that say what is not decided in a module, folders of more than 24
modules, modules under 40 lines with a single importer whose docstring does not say why they stand alone, and a share of
participle-named functions of 2 % or more.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "remuda"
MOST_MODULES = 24
FEWEST_LINES = 40
FEWEST_WORDS = 5
MOST_PARTICIPLES = 0.02
NEGATIVE = re.compile(r"decided (here|elsewhere)|[Nn]othing (is|here is) decided|[Nn]obody decides|[Dd]ecides nothing")
STANDS_ALONE = re.compile(r"\bown module\b|\bseparate module\b|\bstands alone\b")
IRREGULAR = re.compile(
    "begun|bound|broken|brought|built|chosen|dealt|done|drawn|driven|found|given|gone|grown|heard|held|hidden|kept|known|"
    "laid|left|lost|made|meant|met|paid|said|seen|sent|shown|taken|thrown|told|understood|written"
)
NOT_PARTICIPLES = frozenset(
    ["embed", "exceed", "feed", "missing", "need", "pending", "proceed", "seed", "speed", "string", "warning"]
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_participle(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    regular = (len(word) > 4 and word.endswith("ed")) or (len(word) > 5 and word.endswith("ing"))
    return IRREGULAR.fullmatch(word) is not None or (regular and word not in NOT_PARTICIPLES)


def is_endpoint(node: ast.ClassDef | Function) -> bool:
    """True if `routes` decorates the function: its docstring is the summary in the reference of endpoints."""
    calls = [decorator.func for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return any(isinstance(call, ast.Attribute) and ast.unparse(call.value) == "routes" for call in calls)


def check_module(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | Function):
            continue
        text = ast.get_docstring(node)
        line = 1 if isinstance(node, ast.Module) else node.lineno
        is_free = isinstance(node, ast.Module) or is_endpoint(node)
        if text is not None and len(text.split()) < FEWEST_WORDS and not is_free:
            yield f"{path}:{line}: docstring {text!r} adds nothing: delete it or write a sentence"
        if text is not None and (match := NEGATIVE.search(text)):
            yield f"{path}:{line}: {match[0]!r}: say what this code does"


def check_folders(modules: list[Path]) -> Iterator[str]:
    counts: dict[Path, int] = defaultdict(int)
    for path in modules:
        counts[path.parent] += path.name != "__init__.py"
    for folder, count in counts.items():
        if count > MOST_MODULES:
            yield f"{folder}: {count} modules, at most {MOST_MODULES} are allowed"


def find_importers(trees: dict[Path, ast.Module]) -> dict[str, set[Path]]:
    """Dotted module names, each with the files that import it or a name of it."""
    importers: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    importers[node.module].add(path)
                    importers[f"{node.module}.{alias.name}"].add(path)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importers[alias.name].add(path)
    return importers


def check_small_modules(trees: dict[Path, ast.Module]) -> Iterator[str]:
    importers = find_importers(trees)
    for path, tree in trees.items():
        lines = len((ROOT / path).read_text().splitlines())
        dotted = ".".join(path.relative_to("src").with_suffix("").parts)
        if path.name.startswith("__") or lines >= FEWEST_LINES or len(importers[dotted] - {path}) != 1:
            continue
        if not STANDS_ALONE.search(ast.get_docstring(tree) or ""):
            yield f"{path}: {lines} lines with one importer: merge it, or say in its docstring why it is its own module"


def main() -> int:
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if not re.search(r"_pb2|_grpc", path.name)]
    trees = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in modules}
    problems = [problem for path, tree in trees.items() for problem in check_module(path, tree)]
    problems += check_folders(list(trees))
    problems += check_small_modules(trees)
    functions = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and not node.name.startswith("__")
    ]
    participles = [f"{path}:{node.lineno}: {node.name}" for path, node in functions if is_participle(node.name)]
    if len(participles) >= MOST_PARTICIPLES * len(functions):
        problems += participles
        problems.append(f"{len(participles)} of {len(functions)} functions are named by a participle: use imperatives")
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
