"""`remuda docs`: where a page is, and what to do if the documentation is not there. Texts that name a page name one
that exists."""

import re
import sys
import webbrowser
from pathlib import Path

import pytest

from remuda import __version__
from remuda.cli import documentation
from remuda.cli.documentation import explain_missing, find_page, find_site
from remuda.cli.main import call
from remuda.lib.exits import BadInputError, CommandError

ROOT = Path(__file__).parents[3]
WHEEL = f"./remuda_docs-{__version__}-py3-none-any.whl"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with the pages of the documentation, installed as the distribution remuda-docs."""
    folder = tmp_path / "packages" / "remuda_docs" / "html"
    for page in (ROOT / "docs").rglob("*.md"):
        file = folder / page.relative_to(ROOT / "docs").with_suffix(".html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (folder / "404.html").touch()
    (folder.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return folder


def test_the_address_of_a_page(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, page in (
        ((), "index"),
        (("run-settings",), "reference/generated/run-settings"),
        (("how-to/install",), "how-to/install"),
        (("docs/reference/cli.md",), "reference/cli"),
        (("reference/http",), "reference/http"),
        (("generated/http.html",), "reference/generated/http"),
    ):
        assert call(["docs", *words]) == 0
        assert capsys.readouterr().out == f"{(site / page).with_suffix('.html').as_uri()}\n"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("http", "http: there are several such pages; write reference/generated/http or reference/http"),
        ("run-setings", "run-setings: there is no such page; did you mean run-settings?"),
        ("qqqqqq", "qqqqqq: there is no such page; `remuda docs` prints the address of the first one, which lists all"),
        ("404", "404: there is no such page"),
        ("../../__init__", "there is no such page"),
        ("", "there is no such page"),
    ],
)
def test_a_page_that_is_not_clear(site: Path, name: str, error: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(error)):
        find_page(site, name)


def test_a_browser_opens_the_page(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def open_address(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", open_address)
    assert call(["docs", "cli", "--open"]) == 0
    assert opened == [(site / "reference/cli.html").as_uri()]
    assert capsys.readouterr().out == f"{opened[0]}\n"
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with pytest.raises(CommandError, match="no browser could be started"):
        call(["docs", "cli", "--open"])


def test_where_the_documentation_is_looked_for(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_site() == site
    (site / "index.html").unlink()
    monkeypatch.setattr(documentation, "CLONE", tmp_path)
    monkeypatch.setattr(documentation, "DEBIAN_SITE", tmp_path / "html")
    for folder in ("html", "build/site"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "index.html").touch()
    # The files of the Debian package belong to its own program only, `build/site` to that of a clone.
    assert find_site() is None
    (tmp_path / "mkdocs.yml").touch()
    assert find_site() == tmp_path / "build/site"
    monkeypatch.setattr(sys, "prefix", "/usr/lib/remuda")
    assert find_site() == tmp_path / "html"


def test_without_the_documentation_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "find_site", lambda: None)
    with pytest.raises(CommandError, match="not built yet; run `make docs` in"):
        call(["docs", "cli"])
    monkeypatch.setattr(documentation, "CLONE", Path("/usr/lib/python3"))
    with pytest.raises(CommandError, match="the documentation is not installed here"):
        call(["docs", "cli"])


@pytest.mark.parametrize(
    ("prefix", "is_clone", "command"),
    [
        ("/home/me/.local/share/pipx/venvs/remuda", False, f"pipx inject remuda {WHEEL}"),
        ("/home/me/.local/share/uv/tools/remuda", False, f"uv pip install --python {{prefix}} {WHEEL}"),
        ("/usr/lib/remuda", False, f"python3 -m zipfile --extract {WHEEL} docs"),
        ("/srv/venv", False, f"/srv/venv/bin/python -m pip install {WHEEL}"),
        ("/home/me/remuda/.venv", True, "make docs"),
    ],
)
def test_the_advice_fits_the_way_of_the_installation(prefix: str, is_clone: bool, command: str) -> None:
    text = explain_missing(Path(prefix), is_clone=is_clone)
    assert command.format(prefix=prefix) in text


def test_the_distribution_has_the_version_of_remuda() -> None:
    assert f'version = "{__version__}"' in (ROOT / "packaging/docs/pyproject.toml").read_text()
    assert f'docs = ["remuda-docs=={__version__}"]' in (ROOT / "pyproject.toml").read_text()


def test_texts_name_pages_that_exist(site: Path) -> None:
    places = [file for folder in ("src", "packaging", "docs") for file in (ROOT / folder).rglob("*") if file.is_file()]
    texts = [file.read_text() for file in places if file.suffix in (".py", ".toml", ".md", ".yml", ".service")]
    names = {name for text in texts for name in re.findall(r"`remuda docs ([a-z][\w/-]+)`", text)}
    assert names >= {"run-settings", "cell-settings", "write-a-plugin"}
    for name in names:
        assert find_page(site, name).is_file()


def test_texts_for_users_name_no_file_of_a_clone() -> None:
    """Docstrings and comments are for contributors, except for those of commands, which are help texts."""
    for file in ROOT.glob("packaging/**/*"):
        if file.is_file() and file.suffix != ".pyc":
            assert "docs/reference" not in file.read_text(), file
    for file in (ROOT / "src/remuda").rglob("*.py"):
        without_comments = re.sub(r"#.*", "", file.read_text())
        texts = without_comments if "cli" in file.parts else re.sub(r'"""[\s\S]*?"""', "", without_comments)
        assert not re.search(r"docs/[\w/-]+\.md", texts), file
