"""Write docs/reference/generated from what the code declares.

    python tools/generate_reference.py            write the pages
    python tools/generate_reference.py --check    exit with 1 if a page is out of date

Each function below makes one page. `make docs` writes them, `make lint` checks them.
"""

import ast
import io
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from inspect import getsource
from pathlib import Path
from typing import Any, get_type_hints

import client_table
import msgspec
import yaml
from rich.console import Console

from remuda.cell.http.edge.app import api_document
from remuda.cell.metrics import CellMetrics
from remuda.cell.settings import CellSettings, setting_fields
from remuda.cli.cell.settings import DEFAULT_PORT
from remuda.cli.main import COMMANDS, GROUPS, build_app
from remuda.cli.options import PipelineArguments
from remuda.cli.run import RunArguments
from remuda.localrun.settings.keys import all_keys
from remuda.manager.config.keys.fact import UNSAFE, Fact, Verdict
from remuda.manager.config.keys.lookup import GROUPS as KEY_GROUPS
from remuda.manager.metrics import metric_table
from remuda.pipeline.syntax import known_keys

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "interop" / "corpus"
FOLDER = ROOT / "docs" / "reference" / "generated"
PROTOS = ROOT / "src" / "remuda" / "wire" / "proto"
WIDTH = 116
HELP_WIDTH = 118


def definition(term: str, *paragraphs: str) -> str:
    """One entry of a definition list."""
    texts = [
        textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
        for text in paragraphs
        if text
    ]
    body = textwrap.indent("\n\n".join(texts), "    ").lstrip()
    return f"{term}\n:   {body}\n"


def page(title: str, about: str, sections: Iterable[str]) -> str:
    head = textwrap.fill(about, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"# {title}\n", f"{head}\n", *sections]).rstrip() + "\n"


def commands() -> str:
    sections = []
    for words in [*GROUPS, *(command.words for command in COMMANDS)]:
        if words in GROUPS:
            continue
        text = io.StringIO()
        console = Console(file=text, width=HELP_WIDTH, no_color=True, force_terminal=False)
        build_app(words.split()).help_print(words.split(), console=console)
        sections.append(f"## remuda {words}\n\n```text\n{_remove_boxes(text.getvalue())}\n```\n")
    return page(
        "Commands",
        "The help text of every command. [Command line](../cli.md) explains how they work together.",
        sections,
    )


def _remove_boxes(text: str) -> str:
    """Replace the frames around arguments and options by a heading and an indent."""
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        if heading := re.fullmatch(r"╭─ (.*?) ─*╮", line.strip()):
            lines += ["", f"{heading[1]}:"]
        elif row := re.fullmatch(r"│ (.*) │", line.strip()):
            lines.append(f"  {row[1]}".rstrip())
        elif not re.fullmatch(r"╰─*╯", line.strip()):
            lines.append(line.rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def cell_settings() -> str:
    sections = []
    for name, text in _documented_settings(CellSettings):
        default = f"Default: {_default(name)}." if name != "data" else "Default: `cell` in the user's data folder."
        sections.append(definition(f"`{name}`", text, default))
    return page(
        "Settings of a cell",
        "Each setting is a key in `cell.toml` or an environment variable: `REMUDA_` and its name in capitals, lists "
        "separated by commas (`data`, `host`, `port` and `cell_id`: key or option only). A name with a dot is in a "
        "table of the file, `web.enabled` for example in `[web]`; its variable is `REMUDA_WEB_ENABLED`. Times "
        "are in seconds, sizes in bytes. [Run a cell](../../how-to/run-a-cell.md) has a file to begin with. "
        "[Command line](../cli.md) describes the options of `remuda cell serve`, which have precedence.",
        sections,
    )


def _documented_settings(kind: type[msgspec.Struct], prefix: str = "") -> Iterable[tuple[str, str]]:
    """The name and the docstring of each setting, those of tables last and with the names of the tables."""
    body = ast.parse(getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    types = get_type_hints(kind)
    tables = []
    for field, text in _documented(body.body):
        if not isinstance(field, ast.AnnAssign):
            continue
        name = ast.unparse(field.target)
        if isinstance(types[name], type) and issubclass(types[name], msgspec.Struct):
            tables.append((types[name], f"{prefix}{name}."))
        else:
            yield f"{prefix}{name}", text
    for table, path in tables:
        yield from _documented_settings(table, path)


def _default(setting: str) -> str:
    """The default of a setting of a cell, as one writes it in `cell.toml`; sizes in a readable unit."""
    value = setting_fields()[setting].default
    value = {"port": DEFAULT_PORT}.get(setting, value)  # of `remuda cell serve`
    if value in ("", None, ()):
        return "none"
    if setting.endswith("_bytes"):
        exponent = max(power for power in range(4) if value % 1024**power == 0)
        return f"{value // 1024**exponent} {('bytes', 'KiB', 'MiB', 'GiB')[exponent]}"
    return f"`{json.dumps(value)}`"


def _documented(statements: list[ast.stmt]) -> Iterable[tuple[ast.stmt, str]]:
    """Each statement with the string literal after it, which is the docstring of an attribute."""
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        value = following.value if isinstance(following, ast.Expr) else None
        text = value.value if isinstance(value, ast.Constant) else ""
        yield statement, text if isinstance(text, str) else ""


def run_settings() -> str:
    helps = {}
    for arguments in (PipelineArguments, RunArguments):
        for name, hint in get_type_hints(arguments, include_extras=True).items():
            helps[name] = next((each.help or "" for each in getattr(hint, "__metadata__", ())), "")
    sections = []
    for is_safe in (True, False):
        title = "Keys for every file" if is_safe else "Keys for your own file only"
        why = "" if is_safe else "A repository that sets one of these keys is refused, with file and line.\n"
        sections.append(f"## {title}\n\n{why}")
        for key in all_keys().values():
            if key.is_safe is is_safe:
                kind = key.describe_kind() + (", or a table of names and values" if key.is_assignment else "")
                joined = " Values of several files and of the command line are joined." if key.adds_up else ""
                variable = f" The environment variable `{key.variable}` wins over files." if key.variable else ""
                default = f" Default: `{json.dumps(key.default)}`." if key.default or key.default is False else ""
                text = f"{kind[0].upper()}{kind[1:]}.{default}{joined}{variable}"
                sections.append(definition(f"`{key.name}`", helps[key.field], text))
    return page(
        "Settings of remuda run",
        "Keys of `.remuda.toml` in the top folder of a repository, and of `~/.config/remuda/settings.toml`. They are "
        "the options of `remuda run`, without dashes. [Command line](../cli.md#settings-files) explains the files.",
        sections,
    )


def config_toml() -> str:
    sections = []
    for section, facts in KEY_GROUPS.items():
        name = "`[[runners]]`" if section == "runners" else f"`[{section}]`" if section else "Top level"
        sections.append(f"## {name}\n")
        keys_by_text: dict[str, list[str]] = {}
        for key, fact in facts.items():
            keys_by_text.setdefault(_describe(fact), []).append(f"`{key}`")
        sections += [definition("\n".join(keys), text) for text, keys in keys_by_text.items()]
    return page(
        "Keys of config.toml",
        "Every key of gitlab-runner and of Remuda. A key without a remark works as in gitlab-runner. *Differs*: it "
        "works in another way. *No effect*: it is accepted with a warning. *Refused*: the file is not used if the key "
        "is set. "
        "*Only Remuda*: gitlab-runner does not have the key and ignores it, so both can use one file. Durations are "
        "written as `90s`, `30m` or `1h30m`; a plain number means seconds. Sizes are written as `512m` or `2g`. "
        "[config.toml](../config-toml.md) has examples.",
        sections,
    )


_REMARKS = {
    Verdict.WORKS: "",
    Verdict.DIFFERS: "*Differs*: ",
    Verdict.IGNORED: "*No effect*: ",
    Verdict.REFUSED: "*Refused*: ",
}


def _describe(fact: Fact) -> str:
    remark = "*Only Remuda*: " if fact.is_own else _REMARKS[fact.verdict]
    about = re.sub(r"\]\((?!https?:)", "](../", fact.about.removeprefix(UNSAFE))
    about = about if remark else about[0].upper() + about[1:]
    names = " A table with any keys." if fact.is_open else ""
    required = " Required." if fact.default == "required" else f" Default: {fact.default}." if fact.default else ""
    return f"{remark}{about}.{names}{required}"


def metrics() -> str:
    families = [family() for family in CellMetrics().registry.families]
    sections = ["## Cell\n"]
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        sections.append(definition(f"`{name}`", f"{family.type}. {family.documentation}"))
    sections.append("## Manager\n")
    for family in metric_table.FAMILIES:
        labels = f" Labels: {', '.join(f'`{label}`' for label in family.labels)}." if family.labels else ""
        text = f"Not served: {family.missing}." if family.missing else f"{family.kind}. {family.text}{labels}"
        sections.append(definition(f"`{family.name}`", text))
    return page(
        "Metric names",
        "Every metric, with type and labels. [Metrics](../metrics.md) explains how to use them.",
        sections,
    )


COMMON_REFUSALS = frozenset({"400", "401", "403", "404", "405", "408", "413", "429", "503"})
"""Statuses that most endpoints may answer; http.md explains them."""
AREAS = (
    "/api/v4/projects/{id}/repository",
    "/api/v4/projects",
    "/api/v4/groups",
    "/api/v4/runners",
    "/api/v4/jobs",
    "/api/v4",
    "/api/remuda/v1",
)
"""The sections of the page. An endpoint is in the first section whose path it begins with."""


def http() -> str:
    document = json.loads(api_document())
    schemas = document["components"]["schemas"]
    areas: dict[str, list[str]] = {f"`{area}`": [] for area in AREAS} | {"Outside the API": []}
    for path, operations in document["paths"].items():
        area = next((f"`{area}`" for area in AREAS if f"{path}/".startswith(f"{area}/")), "Outside the API")
        for method, operation in operations.items():
            statuses = ", ".join(status for status in operation["responses"] if status not in COMMON_REFUSALS)
            text = f"{operation['summary'].rstrip('.')}. {operation['description']} Status: {statuses}."
            areas[area].append(definition(f"`{method.upper()} {path}`", text, *_parameters(operation, schemas)))
    sections = [line for area, entries in areas.items() for line in (f"## {area}\n", *entries)]
    return page(
        "HTTP endpoints",
        "Every endpoint of a cell, with the names of its parameters and its statuses. A body is JSON or a form, unless "
        "the text says otherwise. Statuses of refusals that most endpoints share are left out. `remuda cell openapi` "
        "prints the types of all fields. [HTTP](../http.md) explains authentication, paging and errors.",
        sections,
    )


def _parameters(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[str]:
    """The names of the parameters of an operation, in the query and in the body."""
    query = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    body = list(schemas[schema].get("properties", ())) if schema else []
    return [
        f"{place}: {', '.join(f'`{name}`' for name in names)}."
        for place, names in (("Query", query), ("Body", body))
        if names
    ]


def grpc() -> str:
    sections = []
    for proto in sorted(PROTOS.glob("*.proto")):
        comment: list[str] = []
        for line in proto.read_text().splitlines():
            text = line.strip()
            if text.startswith("//"):
                comment.append(text.removeprefix("//").strip())
                continue
            if service := re.match(r"service (\w+)", text):
                place = f"Defined in `{proto.relative_to(ROOT / 'src')}`."
                sections.append(f"## {service[1]}\n\n{textwrap.fill(' '.join([*comment, place]), WIDTH)}\n")
            elif call := re.match(r"rpc (\w+)\((.*?)\) returns \((.*?)\)", text):
                sections.append(definition(f"`{call[1]}({call[2]}) → {call[3]}`", " ".join(comment) or "No comment."))
            comment = []
    return page(
        "gRPC services", "The calls of the agent, of environment plugins and of instance group plugins.", sections
    )


def keywords() -> str:
    tables: Mapping[str, Any] = {
        name: value
        for name, value in vars(known_keys).items()
        if isinstance(value, known_keys.Keys) and not name.startswith("_")
    }
    texts = {
        ast.unparse(statement.targets[0]): text
        for statement, text in _documented(ast.parse(getsource(known_keys)).body)
        if isinstance(statement, ast.Assign)
    }
    sections = []
    for name, keys in tables.items():
        works = ", ".join(f"`{key}`" for key in keys.works)
        later = ", ".join(f"`{key}`" for key in keys.later)
        no_effect = "; ".join(f"`{key}` ({text})" for key, text in keys.no_effect.items())
        sections.append(
            definition(
                name.lower().replace("_", " "),
                texts[name],
                f"Works: {works}.",
                f"Without effect, with a warning: {no_effect}." if no_effect else "",
                f"Not supported yet: {later}." if later else "",
            )
        )
    return page(
        "Keywords of .gitlab-ci.yml",
        "The keys that each part of a pipeline file may have. [Keywords](../pipeline-keywords.md) explains them.",
        sections,
    )


def pipeline_forms() -> str:
    """Make the page from the expectations of `tests/interop/corpus`."""
    expectations = {
        str(file.relative_to(CORPUS)).removesuffix(".expect.yml"): yaml.safe_load(file.read_text())
        for file in sorted(CORPUS.glob("*/*.expect.yml"))
    }
    refused: dict[str, dict[str, str]] = {}
    warned: dict[str, dict[str, str]] = {}
    differing: dict[str, dict[str, str]] = {}
    for name, expected in expectations.items():
        about = expected["about"]
        if "why" in expected:
            refused_here = "mistakes" in expected or any("mistakes" in event for event in expected.get("events", ()))
            (refused if refused_here else warned).setdefault(expected["why"], {})[name] = about
        if "differs" in expected:
            differing.setdefault(expected["differs"], {})[name] = about
    sections = [
        "## Refused\n",
        "GitLab refuses these, too.\n",
        *_forms(refused),
        "## With a warning\n",
        "The file works, but a part of it does not do what its author may expect.\n",
        *_forms(warned),
        "## Different from GitLab\n",
        *_forms(differing),
    ]
    intro = f"""What Remuda refuses, passes over or does differently in `.gitlab-ci.yml`. Made from the
        {len(expectations)} files of `tests/interop/corpus`, which are written in the style of real projects and
        compared with what GitLab makes of them ([tests](../../interop.md#pipeline-files)). Everything else in these
        files has GitLab's result. [Pipeline keywords](../pipeline-keywords.md) describes the keywords."""
    return page("Forms of pipeline files", " ".join(intro.split()), sections)


def _forms(entries: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Write the forms with the reason, and the files that show them. `entries`: for each reason, forms by file."""
    return [
        definition("\n".join(forms.values()), why, "Shown by " + ", ".join(f"`{name}`" for name in forms) + ".")
        for why, forms in entries.items()
    ]


def api_clients() -> str:
    endpoints = client_table.Endpoints(json.loads(api_document()))
    table, absent_in_part, absent = client_table.library_texts(endpoints)
    return page(
        "API clients",
        "Which calls of clients that others wrote a cell answers, computed from the lists of their own methods and the "
        "cell's OpenAPI document. `make interop` runs these clients against a cell "
        "([Other programs](../../interop.md#api-clients)).",
        [
            "## Libraries\n",
            "Number of calls that work, of those that the library can make. client-go is GitLab's Go library, on which "
            "glab and\nthe Terraform provider are built.\n",
            table,
            client_table.program_section("glab", "command", client_table.GLAB_COMMANDS, endpoints),
            client_table.program_section("Terraform", "resource", client_table.TERRAFORM_RESOURCES, endpoints),
            "## Absent in part\n",
            "Calls of the libraries that answer 404, in parts of the API of which others work. With a method, the path "
            "has other\nmethods, and this one answers 405.\n",
            absent_in_part,
            "## Absent\n",
            "These parts of GitLab's API answer 404: they belong to code review, planning, packages and the "
            "administration of\nGitLab itself.\n",
            absent,
        ],
    )


PAGES = {
    "api-clients": api_clients,
    "commands": commands,
    "cell-settings": cell_settings,
    "config-toml": config_toml,
    "run-settings": run_settings,
    "metrics": metrics,
    "http": http,
    "grpc": grpc,
    "keywords": keywords,
    "pipeline-forms": pipeline_forms,
}


def main() -> int:
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make_page in PAGES.items():
        file = FOLDER / f"{name}.md"
        text = make_page()
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            stale.append(str(file.relative_to(ROOT)))
    for name in stale:
        print(f"{name} is out of date: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
