"""`remuda docs`: finds the pages of the installed documentation. They come with the distribution `remuda-docs`, with
the Debian package, or from `make docs` in a clone."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda import __file__ as package_file
from remuda import __version__
from remuda.lib.exits import BadInputError, CommandError

DEBIAN_PREFIX = Path("/usr/lib/remuda")
DEBIAN_SITE = Path("/usr/share/doc/remuda/html")
CLONE = Path(package_file).parents[2]
"""The top folder, if this program is run from a clone."""
NO_PAGE = "404"


def docs(
    page: Annotated[str, Parameter(help="A page, such as run-settings or reference/cli.")] = "index",
    /,
    *,
    opens: Annotated[bool, Parameter(name="--open", help="Open the page in a browser.", negative="")] = False,
) -> None:
    """Print the address of a page of the documentation, which is installed on this machine.

    Help texts and settings files name pages in this way. If the documentation is not installed, the command says how to
    install it.

    Try:

        remuda docs
        remuda docs run-settings
        remuda docs tutorial --open
    """
    site = find_site()
    if site is None:
        raise CommandError(explain_missing(Path(sys.prefix), is_clone=_is_clone()))
    address = find_page(site, page).as_uri()
    print(address)
    if opens:
        import webbrowser

        if not webbrowser.open(address):
            raise CommandError("no browser could be started here; open the address above in one")


def find_site() -> Path | None:
    """Return the folder with the pages; None if there is none."""
    return next((place for place in _list_places() if (place / "index.html").is_file()), None)


def _list_places() -> Iterator[Path]:
    package = importlib.util.find_spec("remuda_docs")
    if package is not None:
        yield from (Path(folder) / "html" for folder in package.submodule_search_locations or ())
    if Path(sys.prefix) == DEBIAN_PREFIX:
        yield DEBIAN_SITE
    if _is_clone():
        yield CLONE / "build" / "site"


def _is_clone() -> bool:
    return (CLONE / "mkdocs.yml").is_file()


def find_page(site: Path, name: str) -> Path:
    """Return the file of the page with this name or path, or with the end of a path. Raises BadInputError if there is
    none, or more than one."""
    pages = {file.relative_to(site).with_suffix("").as_posix(): file for file in sorted(site.rglob("*.html"))}
    pages.pop(NO_PAGE, None)
    path = name.removeprefix("docs/").removesuffix(".md").removesuffix(".html")
    matches = [path] if path in pages else [each for each in pages if each.endswith(f"/{path}") and path]
    if len(matches) == 1:
        return pages[matches[0]]
    if matches:
        raise BadInputError(f"{name}: there are several such pages; write {' or '.join(matches)}")
    from difflib import get_close_matches

    near = get_close_matches(path, {each.rpartition("/")[2] for each in pages}, 1)
    hint = f"did you mean {near[0]}?" if near else "`remuda docs` prints the address of the first one, which lists all"
    raise BadInputError(f"{name}: there is no such page; {hint}")


def explain_missing(prefix: Path, *, is_clone: bool) -> str:
    """Say how to install the documentation for a program in the virtual environment `prefix`."""
    if is_clone:
        return f"the documentation is not built yet; run `make docs` in {CLONE}"
    wheel, then = f"./remuda_docs-{__version__}-py3-none-any.whl", ""
    if prefix == DEBIAN_PREFIX:
        # The container image has no /usr/share/doc, and other images leave it out when they install packages.
        command = f"python3 -m zipfile --extract {wheel} docs"
        then = ", and open docs/remuda_docs/html/index.html in a browser"
    elif "pipx" in prefix.parts:
        command = f"pipx inject remuda {wheel}"
    elif {"uv", "tools"} <= set(prefix.parts):
        command = f"uv pip install --python {prefix} {wheel}"
    else:
        command = f"{prefix / 'bin' / 'python'} -m pip install {wheel}"
    return (
        f"the documentation is not installed here; run this in the folder with the files of the release{then}:"
        f"\n\n    {command}"
    )
