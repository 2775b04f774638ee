import io
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.steps.resolving import layers
from remuda.steps.resolving.errors import ResolveError
from remuda.steps.resolving.layers import unpack_layers


def create_member(name: str, text: str = "x", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(member, key, value)
    data = text.encode() if member.isreg() else b""
    member.size = len(data)
    return member, data


def create_link(name: str, destination: str) -> tuple[tarfile.TarInfo, bytes]:
    return create_member(name, type=tarfile.SYMTYPE, linkname=destination)


def unpack(tmp_path: Path, *archives: list[tuple[tarfile.TarInfo, bytes]], limit_bytes: int = 30_000) -> Path:
    files = []
    tmp_path.mkdir(exist_ok=True)
    for number, members in enumerate(archives):
        files.append(tmp_path / f"layer-{number}")
        with tarfile.open(files[-1], "w") as archive:
            for member, data in members:
                archive.addfile(member, io.BytesIO(data))
    unpack_layers(files, tmp_path / "out", limit_bytes=limit_bytes)
    return tmp_path / "out"


MALICIOUS_MEMBERS: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "a parent folder": [create_member("../evil")],
    "an absolute path": [create_member("/evil")],
    "a parent folder inside of a path": [create_member("a/../../evil")],
    "a file behind a link": [create_link("dir", "/tmp"), create_member("dir/evil")],
    "a file behind a link inside": [create_link("dir", "."), create_member("dir/evil")],
    "a link behind a link": [create_link("dir", "."), create_link("dir/x", "y")],
    "an absolute link": [create_link("link", "/etc/passwd")],
    "a link to a parent folder": [create_link("a/link", "../../x")],
    "a link to a parent folder through another link": [create_link("p/q/d", "../.."), create_link("e", "p/q/d/../x")],
    "a device": [create_member("null", type=tarfile.CHRTYPE)],
    "a pipe": [create_member("pipe", type=tarfile.FIFOTYPE)],
    "a hard link to a file outside": [create_member("name", type=tarfile.LNKTYPE, linkname="../secret")],
    "a hard link to a missing file": [create_member("name", type=tarfile.LNKTYPE, linkname="nothing")],
    "a hard link to a link": [create_link("a", "b"), create_member("name", type=tarfile.LNKTYPE, linkname="a")],
    "a whiteout of a parent folder": [create_member(".wh...")],
    "a file as the folder of another file": [create_member("a"), create_member("a/b")],
    "too much data": [create_member("a", "x" * 40_000)],
    "a path of many folders": [create_member("a/" * 400_000 + "b")],
    "a hard link to a path of many folders": [create_member("a", type=tarfile.LNKTYPE, linkname="a/" * 400_000)],
    "a long name": [create_member("a" * 300)],
    "a long target of a link": [create_link("a", "b" * 5000)],
    "a link with no target": [create_link("a", "")],
}


@pytest.mark.parametrize("members", MALICIOUS_MEMBERS.values(), ids=MALICIOUS_MEMBERS)
def test_malicious_archives_are_refused(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    (tmp_path / "secret").write_text("s")
    with pytest.raises(
        ResolveError, match=r"leads out of it|below a link|not a file, folder|hard link|damaged|more than|too long"
    ):
        unpack(tmp_path, members)
    assert not (tmp_path / "evil").exists()
    assert (tmp_path / "secret").read_text() == "s"


def test_a_whiteout_of_the_folder_itself_does_nothing(tmp_path: Path) -> None:
    out = unpack(tmp_path, [create_member("a"), create_member(".wh.."), create_member(".wh.")])
    assert [path.name for path in out.iterdir()] == ["a"]


def test_every_user_can_read_files_and_only_the_owner_can_write(tmp_path: Path) -> None:
    modes = {"a": 0o6755, "b": 0o000, "c": 0o500, "d": 0o666, "e": 0o777}
    out = unpack(tmp_path, [create_member(name, mode=mode, uid=1234) for name, mode in modes.items()])
    assert [(out / name).stat().st_mode & 0o7777 for name in modes] == [0o755, 0o644, 0o755, 0o644, 0o755]


def test_hard_links_links_and_folders_are_unpacked(tmp_path: Path) -> None:
    members = [
        create_member("./dir/", type=tarfile.DIRTYPE),
        create_member("./dir/a", "text"),
        create_member("b", type=tarfile.LNKTYPE, linkname="./dir/a"),
        create_link("dir/up", "../b"),
        create_link("dangling", "not/there"),
    ]
    out = unpack(tmp_path, members)
    assert (out / "b").read_text() == (out / "dir/up").read_text() == "text"
    assert (out / "dangling").is_symlink()


def test_a_layer_can_replace_entries_by_others_of_another_type(tmp_path: Path) -> None:
    first = [create_member("dir/a"), create_link("link", "dir"), create_member("file")]
    second = [
        create_link("dir", "file"),
        create_member("link/", type=tarfile.DIRTYPE),
        create_member("link/x"),
        create_member("file", "2"),
    ]
    out = unpack(tmp_path, first, second)
    assert (out / "dir").is_symlink()
    assert (out / "link/x").is_file()
    assert (out / "file").read_text() == "2"


def test_links_are_removed_with_their_folder(tmp_path: Path) -> None:
    out = unpack(
        tmp_path, [create_link("gone/link", "x"), create_link("kept/link", "x")], [create_member("gone", "a file now")]
    )
    assert (out / "gone").read_text() == "a file now"
    assert (out / "kept/link").is_symlink()


def test_an_opaque_whiteout_keeps_the_root_folder(tmp_path: Path) -> None:
    out = unpack(tmp_path, [create_member("a")], [create_member(".wh..wh..opq")])
    assert out.is_dir()
    assert not list(out.iterdir())


def test_a_too_large_header_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"comment": "x" * (layers.LARGEST_HEADER_BYTES + 1)}
    with tarfile.open(tmp_path / "layer", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    with pytest.raises(ResolveError, match="header of more than"):
        unpack_layers([tmp_path / "layer"], tmp_path / "out")


def a_block(kind: bytes, size: int = 0, **pax_headers: str) -> bytes:
    """Return the header of a member, behind a local pax header if there are `pax_headers`."""
    member = tarfile.TarInfo("x")
    member.type, member.size, member.pax_headers = kind, size, pax_headers
    return member.tobuf(tarfile.PAX_FORMAT if pax_headers else tarfile.GNU_FORMAT)


def an_extended_header(**values: str) -> bytes:
    """Return a pax header for all members that follow."""
    return tarfile.TarInfo.create_pax_global_header(values)


def an_old_sparse_file(blocks: int) -> bytes:
    """Return a sparse file in the old format of GNU tar, whose map continues in so many blocks."""
    header = bytearray(a_block(tarfile.GNUTYPE_SPARSE))
    header[386:482] = b"00000000001\0" * 8
    header[482] = blocks > 0
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * ord(" "))
    more = (b"00000000001\0" * 42 + b"\1").ljust(512, b"\0")
    return bytes(header) + more * blocks


A_SPARSE_FILE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "10"}
COSTLY_ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "the map of a sparse file": (
        lambda: a_block(tarfile.REGTYPE, 4 << 20, **A_SPARSE_FILE) + b"9" * 12 + b"\n" + b"0\n" * (2 << 20),
        "header of more than",
    ),
    "the old map of a sparse file": (lambda: an_old_sparse_file(5000), "header of more than"),
    "a sparse file": (lambda: an_old_sparse_file(0), "not a file, folder or link"),
    "headers for all members that follow": (
        lambda: an_extended_header(**{f"key{number}": "x" for number in range(1000)}) + a_block(tarfile.REGTYPE),
        "more than 100 global headers",
    ),
    "nested headers": (lambda: an_extended_header(comment="x") * 2000 + a_block(tarfile.REGTYPE), "damaged"),
}


@pytest.mark.parametrize(("build", "text"), COSTLY_ARCHIVES.values(), ids=COSTLY_ARCHIVES)
def test_archives_that_cost_time_or_memory_are_refused(tmp_path: Path, build: Callable[[], bytes], text: str) -> None:
    (tmp_path / "layer").write_bytes(build() + b"\0" * 1024)
    with pytest.raises(ResolveError, match=text):
        unpack_layers([tmp_path / "layer"], tmp_path / "out")


def test_headers_of_all_members_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "LARGEST_HEADERS_BYTES", 10_000)
    half = [create_member(f"{number}") for number in range(12)]
    unpack(tmp_path / "1", half)
    with pytest.raises(ResolveError, match="headers of the image have more than 10000 bytes"):
        unpack(tmp_path / "2", half, half, limit_bytes=100_000)


def test_headers_of_earlier_members_are_forgotten(tmp_path: Path) -> None:
    values = {f"key{number}": "x" for number in range(2000)}
    (tmp_path / "layer").write_bytes(a_block(tarfile.REGTYPE, 0, **values) * 100 + b"\0" * 1024)
    tracemalloc.start()
    try:
        unpack_layers([tmp_path / "layer"], tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_layers_together_are_limited_also_if_they_have_no_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"\0" * 20_000)
    unpack_layers([tmp_path / "one"], tmp_path / "out", limit_bytes=30_000)
    with pytest.raises(ResolveError, match="more than 30000 bytes when unpacked"):
        unpack_layers([tmp_path / "one", tmp_path / "two"], tmp_path / "again", limit_bytes=30_000)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"no tar" * 200, lambda data: data[:700], lambda data: data[:100]]
)
def test_damaged_archives_are_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member, data = create_member("a", "x" * 2000)
        archive.addfile(member, io.BytesIO(data))
    (tmp_path / "layer").write_bytes(damage(buffer.getvalue()))
    with pytest.raises(ResolveError, match="damaged or not a tar archive"):
        unpack_layers([tmp_path / "layer"], tmp_path / "out")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_FILES", 2)
    with pytest.raises(ResolveError, match="more than 2 files"):
        unpack(tmp_path, [create_member(name) for name in "abc"])
    with pytest.raises(ResolveError, match="more than 2 files"):
        unpack(tmp_path / "root", [create_member("./", type=tarfile.DIRTYPE)] * 3)


def test_links_in_removed_folders_are_forgotten(tmp_path: Path) -> None:
    first = [create_link("a/b/link", "../x"), create_link("keep", "y"), create_link("a.link", "z")]
    out = unpack(tmp_path, first, [create_member(".wh.a"), create_member("a/b/link", "a file")])
    assert (out / "a/b/link").read_text() == "a file"
    assert sorted(path.name for path in out.iterdir() if path.is_symlink()) == ["a.link", "keep"]
    again = unpack(tmp_path / "2", [create_link("a", "b")], [create_member("a", "replaced"), create_link("c", "a")])
    assert (again / "c").read_text() == "replaced"
