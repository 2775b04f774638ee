"""The search for plugin programs, and the error messages if none is found."""

from importlib.metadata import Distribution, EntryPoint, EntryPoints
from pathlib import Path

import pytest

from remuda.fleeting import plugin_search
from remuda.fleeting.errors import PermanentError
from remuda.fleeting.plugin_search import Where, find_program, list_plugins, places, plugin_folder
from remuda.fleeting.references import REGISTRY, REPOSITORY
from remuda.testing.instance_groups import a_program


class Place:
    """A host with folders for plugins and programs, empty at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plugins = root / "plugins"
        self.env = {"PATH": str(root / "bin"), "FLEETING_PLUGIN_PATH": str(self.plugins), "HOME": str(root / "home")}

    def install(self, version: str, name: str = "aws", location: str = f"{REGISTRY}/{REPOSITORY}") -> str:
        return str(a_program(self.plugins / location / name / version, "", name="plugin"))

    def on_path(self, name: str = "fleeting-plugin-aws") -> str:
        return str(a_program(self.root / "bin", "", name=name))

    def find(self, name: str) -> str:
        return find_program(name, self.env)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of a distribution that announces `aws`. Returns the folder where its program must be."""
    folder = tmp_path / "site" / "fleeting_plugin_aws-3.2.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fleeting-plugin-aws\nVersion: 3.2.1\n")
    (folder / "entry_points.txt").write_text("[remuda.fleeting]\naws = somewhere:Aws\n")
    metadata = Distribution.at(folder)

    def entry_points(group: str) -> EntryPoints:
        entries = [EntryPoint(entry.name, entry.value, entry.group) for entry in metadata.entry_points]
        for entry in entries:
            vars(entry)["dist"] = metadata
        return EntryPoints(entries).select(group=group)

    monkeypatch.setattr(plugin_search, "entry_points", entry_points)
    monkeypatch.setattr("sys.executable", str(tmp_path / "venv/bin/python"))
    return tmp_path / "venv/bin"


def test_an_installed_version_comes_first(place: Place) -> None:
    program, older, newer = place.on_path(), place.install("1.2.0"), place.install("1.10.0")
    assert place.find("aws") == place.find("aws:latest") == place.find("aws:1") == newer
    assert place.find("aws:1.2") == older
    assert place.find("fleeting-plugin-aws") == program


def test_a_program_on_path_is_found_by_either_name(place: Place) -> None:
    program = place.on_path()
    assert place.find("aws") == place.find("fleeting-plugin-aws") == program


def test_a_version_without_a_program_does_not_count(place: Place) -> None:
    whole = place.install("1.0.0")
    (place.plugins / REGISTRY / REPOSITORY / "aws/2.0.0/plugin").mkdir(parents=True)
    assert place.find("aws") == whole


def test_plugins_of_other_registries(place: Place) -> None:
    place.install("1.0.0")
    other = place.install("0.1.0", location="127.0.0.1:5000/team")
    assert place.find("127.0.0.1:5000/team/aws:0") == other


def test_paths_are_taken_as_they_are(place: Place) -> None:
    program = str(a_program(place.root / "some/where", "", name="mine"))
    for path in (program, "./some/where/mine", "some/where/mine"):
        assert place.find(path) == program
    with pytest.raises(PermanentError, match="there is no such program"):
        place.find("./some/where")


def test_folder_named_like_plugin(place: Place) -> None:
    (place.root / "aws").mkdir()
    (place.root / "bin/fleeting-plugin-aws").mkdir(parents=True)
    with pytest.raises(PermanentError, match="there is no plugin aws"):
        place.find("aws")
    installed = place.install("1.0.0")
    assert place.find("aws") == installed


def test_a_file_of_the_working_directory_is_not_used_but_suggested(place: Place) -> None:
    a_program(place.root, "", name="aws")
    with pytest.raises(PermanentError, match=r"write \./aws for the file of this folder"):
        place.find("aws")


def test_the_error_for_a_missing_plugin_names_the_places_searched(place: Place) -> None:
    place.install("1.2.0")
    with pytest.raises(PermanentError) as caught:
        place.find("aws:2")
    message = str(caught.value)
    assert f"aws:2 in {place.plugins / REGISTRY / REPOSITORY / 'aws'} (1.2.0 installed)" in message
    assert "`remuda plugin install aws:2`" in message
    with pytest.raises(PermanentError, match=r"\(none installed\); a program fleeting-plugin-gcp on PATH and beside"):
        place.find("gcp")


def test_a_distribution_is_found_beside_our_python(place: Place, distribution: Path) -> None:
    with pytest.raises(PermanentError, match="is missing: install fleeting-plugin-aws again"):
        place.find("aws")
    program = a_program(distribution, "", name="fleeting-plugin-aws")
    assert place.find("aws") == place.find("fleeting-plugin-aws") == str(program)


def test_all_are_listed_once(place: Place, distribution: Path) -> None:
    beside = a_program(distribution, "", name="fleeting-plugin-aws")
    place.env["PATH"] = f"{place.root / 'bin'}:{distribution}"
    place.on_path("fleeting-plugin-zz")
    for version in ("1.2.0", "1.10.0", "1.10.0-rc.1"):
        place.install(version)
    place.install("0.2.0", "mine", "example.com/team")
    (place.plugins / ".install-x/1.0.0").mkdir(parents=True)
    listed = [(plugin.name, plugin.where, plugin.version) for plugin in list_plugins(place.env)]
    assert listed == [
        ("aws", Where.INSTALLED, "1.10.0"),
        ("aws", Where.INSTALLED, "1.10.0-rc.1"),
        ("aws", Where.INSTALLED, "1.2.0"),
        ("aws", Where.ON_PATH, "3.2.1"),
        ("example.com/team/mine", Where.INSTALLED, "0.2.0"),
        ("zz", Where.ON_PATH, ""),
    ]
    assert beside in [plugin.program for plugin in list_plugins(place.env)]
    shadowing = place.on_path()
    on_path = [str(plugin.program) for plugin in list_plugins(place.env) if plugin.where is Where.ON_PATH]
    assert on_path[:2] == [shadowing, str(beside)], "in the order of PATH"
    place.env["PATH"] = str(place.root / "bin")
    assert ("aws", Where.DISTRIBUTION, "3.2.1") in [
        (plugin.name, plugin.where, plugin.version) for plugin in list_plugins(place.env)
    ]


def test_where_to_look_is_decided_by_the_name_alone() -> None:
    assert places("./aws") == places("/aws") == places("~/aws") == (Where.PATH,)
    assert places("team/aws") == (Where.PATH, Where.INSTALLED)
    assert places("aws:1") == (Where.INSTALLED,)


def test_the_plugin_folder_is_the_same_as_upstreams() -> None:
    assert plugin_folder({"HOME": "/home/ci"}) == Path("/home/ci/.config/fleeting/plugins")
    assert plugin_folder({"HOME": "/home/ci", "FLEETING_PLUGIN_PATH": "/srv/p"}) == Path("/srv/p")


def test_a_program_on_path_may_have_a_name_that_cannot_be_installed(place: Place) -> None:
    program = place.on_path("fleeting-plugin-My_Plugin")
    assert place.find("My_Plugin") == program
    with pytest.raises(PermanentError, match="'Other_Plugin' names no plugin"):
        place.find("Other_Plugin")
