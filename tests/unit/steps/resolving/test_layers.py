import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.steps.resolving import layers
from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.layers import unpack_layers


def a_member(name: str, text: str = "x", **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in facts.items():
        setattr(member, key, value)
    data = text.encode() if member.isreg() else b""
    member.size = len(data)
    return member, data


def a_link(name: str, where: str) -> tuple[tarfile.TarInfo, bytes]:
    return a_member(name, type=tarfile.SYMTYPE, linkname=where)


def unpacked(tmp_path: Path, *archives: list[tuple[tarfile.TarInfo, bytes]], limit_bytes: int = 30_000) -> Path:
    files = []
    for number, members in enumerate(archives):
        files.append(tmp_path / f"layer-{number}")
        with tarfile.open(files[-1], "w") as archive:
            for member, data in members:
                archive.addfile(member, io.BytesIO(data))
    unpack_layers(files, tmp_path / "out", limit_bytes=limit_bytes)
    return tmp_path / "out"


TRICKS: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "a way up": [a_member("../evil")],
    "an absolute path": [a_member("/evil")],
    "a way up in the middle": [a_member("a/../../evil")],
    "a file behind a link": [a_link("dir", "/tmp"), a_member("dir/evil")],
    "a file behind a link inside": [a_link("dir", "."), a_member("dir/evil")],
    "a link behind a link": [a_link("dir", "."), a_link("dir/x", "y")],
    "an absolute link": [a_link("link", "/etc/passwd")],
    "a link up": [a_link("a/link", "../../x")],
    "a link up by way of another": [a_link("p/q/d", "../.."), a_link("e", "p/q/d/../x")],
    "a device": [a_member("null", type=tarfile.CHRTYPE)],
    "a pipe": [a_member("pipe", type=tarfile.FIFOTYPE)],
    "a second name of a file outside": [a_member("name", type=tarfile.LNKTYPE, linkname="../secret")],
    "a second name of nothing": [a_member("name", type=tarfile.LNKTYPE, linkname="nothing")],
    "a removal up": [a_member(".wh...")],
    "a file where a file's folder should be": [a_member("a"), a_member("a/b")],
    "too much": [a_member("a", "x" * 40_000)],
    "a link with no target": [a_link("a", "")],
}


@pytest.mark.parametrize("members", TRICKS.values(), ids=TRICKS)
def test_tricks_are_refused(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    (tmp_path / "secret").write_text("s")
    with pytest.raises(
        ResolveError, match=r"leads out of it|behind a link|no file, folder|second name|damaged|more than"
    ):
        unpacked(tmp_path, members)
    assert not (tmp_path / "evil").exists()
    assert (tmp_path / "secret").read_text() == "s"


def test_a_removal_of_the_folder_itself_does_nothing(tmp_path: Path) -> None:
    out = unpacked(tmp_path, [a_member("a"), a_member(".wh.."), a_member(".wh.")])
    assert [path.name for path in out.iterdir()] == ["a"]


def test_set_id_bits_and_owners_are_dropped(tmp_path: Path) -> None:
    out = unpacked(tmp_path, [a_member("a", mode=0o6755, uid=1234), a_member("b", mode=0o000)])
    assert [(out / name).stat().st_mode & 0o7777 for name in "ab"] == [0o755, 0o400]


def test_second_names_links_and_folders(tmp_path: Path) -> None:
    members = [
        a_member("./dir/", type=tarfile.DIRTYPE),
        a_member("./dir/a", "text"),
        a_member("b", type=tarfile.LNKTYPE, linkname="./dir/a"),
        a_link("dir/up", "../b"),
        a_link("dangling", "not/there"),
    ]
    out = unpacked(tmp_path, members)
    assert (out / "b").read_text() == (out / "dir/up").read_text() == "text"
    assert (out / "dangling").is_symlink()


def test_a_layer_can_turn_things_into_others(tmp_path: Path) -> None:
    first = [a_member("dir/a"), a_link("link", "dir"), a_member("file")]
    second = [a_link("dir", "file"), a_member("link/", type=tarfile.DIRTYPE), a_member("link/x"), a_member("file", "2")]
    out = unpacked(tmp_path, first, second)
    assert (out / "dir").is_symlink()
    assert (out / "link/x").is_file()
    assert (out / "file").read_text() == "2"


def test_links_go_with_their_folder(tmp_path: Path) -> None:
    out = unpacked(tmp_path, [a_link("gone/link", "x"), a_link("kept/link", "x")], [a_member("gone", "a file now")])
    assert (out / "gone").read_text() == "a file now"
    assert (out / "kept/link").is_symlink()


def test_an_emptied_root_is_still_there(tmp_path: Path) -> None:
    out = unpacked(tmp_path, [a_member("a")], [a_member(".wh..wh..opq")])
    assert out.is_dir()
    assert not list(out.iterdir())


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"comment": "x" * (layers.LARGEST_HEADER_BYTES + 1)}
    with tarfile.open(tmp_path / "layer", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    with pytest.raises(ResolveError, match="header of more than"):
        unpack_layers([tmp_path / "layer"], tmp_path / "out")


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"no tar" * 200, lambda data: data[:700], lambda data: data[:100]]
)
def test_damaged_archives(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member, data = a_member("a", "x" * 2000)
        archive.addfile(member, io.BytesIO(data))
    (tmp_path / "layer").write_bytes(damage(made.getvalue()))
    with pytest.raises(ResolveError, match="no tar archive, or damaged"):
        unpack_layers([tmp_path / "layer"], tmp_path / "out")


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_FILES", 2)
    with pytest.raises(ResolveError, match="more than 2 files"):
        unpacked(tmp_path, [a_member(name) for name in "abc"])
