"""Reads a cell's settings: options first, then the environment, then `cell.toml`, then the defaults.

An unknown name is an error in the file and a warning in the environment, where it may belong to another program."""

import difflib
import os
import stat
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.options import Data
from remuda.lib.exits import BadInputError
from remuda.localrun.data_folder import data_folder

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings

Database = Annotated[
    str | None,
    Parameter(
        help="postgresql://USER:PASSWORD@HOST:PORT/NAME, a UTF-8 database for this cell only [default: "
        "REMUDA_DATABASE, else cell.sqlite in --data]."
    ),
]
Config = Annotated[
    Path | None, Parameter(help="File with settings [default: REMUDA_CONFIG, else cell.toml in --data if it exists].")
]

PREFIX = "REMUDA_"
FILE = "cell.toml"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8929
BY_OPTION = frozenset({"REMUDA_DATA", "REMUDA_HOST", "REMUDA_PORT", "REMUDA_CELL_ID"})
"""Variables without effect: these settings come from options or the file only."""
OTHER_VARIABLES = frozenset(
    {f"{PREFIX}{name}" for name in ("URL", "TOKEN", "DEBUG", "LOG_LEVEL", "KILL_POINT", "KILL_MARK", "KILL_AFTER")}
    | {f"{PREFIX}{name}" for name in ("PATIENCE_SECONDS", "INPUTS", "OUTPUTS", "EXPORTS", "MASKS", "JOB_KEY")}
    | {f"{PREFIX}{name}" for name in ("EXCHANGE", "ENVIRONMENT", "CGROUP", "CONFIG")}
)
"""Variables of Remuda that are not settings of a cell: no warning, because a cell that a job starts inherits some."""
RELATIVE_TO_FILE = frozenset({"data", "tls_certificate", "tls_key"})
"""Settings whose relative paths are relative to the folder of the file that has them."""
SECRETS = frozenset({"admin_token", "registration_token", "database", "encryption_keys", "web.oidc.client_secret"})
"""Settings that should not be in a file which other users can read."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """The options that select a cell's data folder, database and configuration, as one parameter of a command."""

    data: Data = None
    database: Database = None
    config: Config = None

    def settings(self, **more: Any) -> "CellSettings":
        """Return the cell's settings, and print warnings about unknown REMUDA_ variables. `more`: further options, as
        keywords named like the settings; None means not set."""
        return self.settings_and_sources(**more)[0]

    def settings_and_sources(self, **more: Any) -> tuple["CellSettings", dict[str, str]]:
        """Return the settings, and by name where each non-default one comes from: file, variable or `option`. Prints
        warnings about unknown REMUDA_ variables. `more`: further options by setting name; None: not set."""
        print_warnings(os.environ)
        return read_settings(os.environ, config=self.config, data=self.data, database=self.database, **more)


NO_CELL_OPTIONS = CellOptions()


def cell_folder(data: Path | None) -> Path:
    return data.absolute() if data else data_folder(None) / "cell"


def settings_from(environment: Mapping[str, str], *, config: Path | None = None, **options: Any) -> "CellSettings":
    """Return settings from `options`, else REMUDA_<NAME>, else `config` or `cell.toml`. BadInputError if invalid."""
    return read_settings(environment, config=config, **options)[0]


def read_settings(
    environment: Mapping[str, str], *, config: Path | None = None, **options: Any
) -> tuple["CellSettings", dict[str, str]]:
    """Return the cell's settings, and by name the source of each one that is not a default: the file, the variable, or
    `option`. `options`: values by name; None means not set. Raises BadInputError if one is invalid."""
    import msgspec

    from remuda.cell.settings import CellSettings

    options = {name: value for name, value in options.items() if value is not None}
    if "data" in options:
        options["data"] = options["data"].absolute()
    path = _file(environment, options.get("data"), config)
    of_file, of_environment = _of_file(path), _of_environment(environment)
    values = {
        "data": cell_folder(None),
        "host": DEFAULT_HOST,
        "port": DEFAULT_PORT,
        **of_file,
        **of_environment,
        **options,
    }
    sources = {
        **dict.fromkeys(of_file, str(path)),
        **{name: _variable(name) for name in of_environment},
        **dict.fromkeys(options, "option"),
    }
    return msgspec.convert(_nest(values), CellSettings), sources


def _variable(name: str) -> str:
    """The environment variable of a setting: `web.oidc.issuer` is REMUDA_WEB_OIDC_ISSUER."""
    return f"{PREFIX}{name.replace('.', '_').upper()}"


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables for names with dots: {"web.enabled": True} becomes {"web": {"enabled": True}}."""
    tables: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = value
    return tables


def _flatten(table: Mapping[str, Any], names: Iterable[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a file with the names of their tables. `names`: the known settings; only a table that has
    some is entered."""
    for name, value in table.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and any(known.startswith(f"{path}.") for known in names):
            yield from _flatten(value, names, f"{path}.")
        else:
            yield path, value


def _file(environment: Mapping[str, str], data: Path | None, config: Path | None) -> Path | None:
    """Return the file of `config` or REMUDA_CONFIG, else an existing `cell.toml` in the data folder, else None."""
    if config is not None or environment.get(f"{PREFIX}CONFIG"):
        return config or Path(environment[f"{PREFIX}CONFIG"])
    usual = cell_folder(data) / FILE
    return usual if usual.exists() else None


def _of_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}; give another file with --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: is not TOML: {error}") from None
    fields = _fields()
    given = dict(_flatten(table, fields))
    for name in given:
        if any(known.startswith(f"{name}.") for known in fields):
            raise BadInputError(f"{path}: {name}: is a table; write [{name}] above its settings")
        if name not in fields:
            raise BadInputError(f"{path}: there is no setting {name}{_nearest(name, fields)}")
    values = {name: _convert(name, value, f"{path}: {name}", strict=True) for name, value in given.items()}
    for name in RELATIVE_TO_FILE & values.keys():
        values[name] = (path.absolute().parent / values[name]).absolute()
    if SECRETS & values.keys() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        _warn(f"{path}: others on this machine may read it, and it holds secrets; chmod 600 {path}")
    return values


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, field in _fields().items():
        variable = _variable(name)
        if variable in BY_OPTION or not (text := environment.get(variable)):
            continue
        value = text.replace(",", " ").split() if isinstance(field.default, tuple) else text
        shown = variable if name in SECRETS else f"{variable}={text}"
        values[name] = _convert(name, value, shown, strict=False)
    return values


def _convert(name: str, value: object, what: str, *, strict: bool) -> Any:
    """Convert a value to a setting's type. `what`: the setting and its source, for errors; `strict`: do not parse texts
    as numbers. Raises BadInputError if the value is invalid."""
    import msgspec

    from remuda.cell.settings import describe_number, is_valid_number

    expected = describe_number(name)
    to_path: Callable[[type, Any], Any] = lambda kind, text: kind(text)  # noqa: E731 - for Path, which msgspec lacks
    try:
        converted = msgspec.convert(value, _fields()[name].type, strict=strict, dec_hook=to_path)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadInputError(f"{what}: {expected or str(error).lower()}") from None
    if expected and not is_valid_number(name, converted):
        raise BadInputError(f"{what}: {expected}")
    return converted


def _fields() -> Mapping[str, Any]:
    from remuda.cell.settings import setting_fields

    return setting_fields()


def _nearest(name: str, names: Iterable[str], *, prefix: str = "") -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def warnings_about(environment: Mapping[str, str]) -> list[str]:
    """Return warnings about REMUDA_ variables that are not settings of a cell, with the most similar setting."""
    settings = {_variable(name) for name in _fields()} - BY_OPTION
    words = [name.removeprefix(PREFIX) for name in settings]
    warnings = []
    for name in sorted(environment):
        if name in BY_OPTION:
            warnings.append(f"{name}: has no effect; use --data, --listen and --cell-id")
        elif name.startswith(PREFIX) and name not in settings | OTHER_VARIABLES:
            # Without the prefix: it would make every name look similar.
            near = _nearest(name.removeprefix(PREFIX), words, prefix=PREFIX)
            warnings.append(f"{name}: there is no such setting{near}")
    return warnings


def print_warnings(environment: Mapping[str, str]) -> None:
    for warning in warnings_about(environment):
        _warn(warning)


def _warn(text: str) -> None:
    print(f"remuda: warning: {text}", file=sys.stderr, flush=True)
