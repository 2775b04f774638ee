"""File actions applied to a tree in memory, and the input of git fast-import."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.errors import InvalidError
from remuda.cell.git.commits import (
    Entry,
    FileAction,
    NewCommit,
    apply_actions,
    check_path,
    fast_import,
    is_branch_name,
    is_done,
)

TREE = {
    "README": Entry("100644", "a" * 40),
    "src/main.c": Entry("100755", "b" * 40),
    "src/lib/x.c": Entry("100644", "c" * 40),
}


def an_action(action: str, file_path: str, **more: object) -> FileAction:
    return FileAction(action=action, file_path=file_path, **more)  # type: ignore[arg-type]


def test_each_action() -> None:
    assert apply_actions(
        TREE,
        [
            an_action("create", "new", content="text"),
            an_action("update", "src/main.c", content="eA==", encoding="base64"),
            an_action("move", "docs/README", previous_path="README"),
            an_action("chmod", "src/lib/x.c", execute_filemode=True),
            an_action("delete", "new"),
        ],
    ) == {
        "new": None,
        "src/main.c": Entry("100755", b"x"),
        "README": None,
        "docs/README": Entry("100644", "a" * 40),
        "src/lib/x.c": Entry("100755", "c" * 40),
    }


def test_an_emptied_folder_can_become_a_file() -> None:
    actions = [
        an_action("delete", "src/main.c"),
        an_action("move", "x.c", previous_path="src/lib/x.c"),
        an_action("create", "src", content="now a file"),
    ]
    assert apply_actions(TREE, actions)["src"] == Entry("100644", b"now a file")
    with pytest.raises(InvalidError, match="directory with this name"):
        apply_actions(TREE, actions[1:])


@pytest.mark.parametrize(
    "action",
    [
        an_action("create", "README", content=""),
        an_action("create", "src", content=""),
        an_action("create", "README/x", content=""),
        an_action("create", "x"),
        an_action("create", "x", content="a", encoding="rot13"),
        an_action("update", "x", content=""),
        an_action("delete", "src"),
        an_action("move", "x"),
        an_action("move", "README", previous_path="src/main.c"),
        an_action("chmod", "x", execute_filemode=True),
        an_action("link", "x", content=""),
    ],
)
def test_invalid_actions(action: FileAction) -> None:
    with pytest.raises(InvalidError):
        apply_actions(TREE, [action])


def test_a_repeated_request_is_recognized() -> None:
    actions = [an_action("create", "new", content="hello\n"), an_action("delete", "README")]
    # The object id that git computes for a blob with this content.
    after = {**TREE, "new": Entry("100644", "ce013625030ba8dba906f756967f9e9ca394464a")}
    del after["README"]
    assert is_done(TREE, after, actions)
    assert not is_done(TREE, TREE, actions)
    assert not is_done(TREE, {**after, "other": Entry("100644", "d" * 40)}, actions)
    assert not is_done(TREE, after, [*actions, an_action("delete", "README")])


@given(st.text(max_size=40))
def test_no_valid_path_leaves_the_repository(path: str) -> None:
    try:
        parts = check_path(path).split("/")
    except InvalidError:
        return
    assert not path.startswith("/")
    assert not {"", ".", "..", ".git"} & {part.lower() for part in parts}
    assert not any(ord(char) < 32 for char in path)


@given(
    branch=st.sampled_from(["main", "feature/x"]),
    message=st.text(max_size=50),
    name=st.text(max_size=20),
    path=st.text(min_size=1, max_size=20).filter(lambda path: not any(ord(char) < 32 for char in path)),
    content=st.binary(max_size=50),
)
def test_values_inject_no_commands_into_stream(branch: str, message: str, name: str, path: str, content: bytes) -> None:
    commit = NewCommit(
        branch=branch,
        parent=None,
        message=message,
        author_name=name,
        author_email=name,
        at=1,
        changes={path: Entry("100644", content)},
    )
    stream = b"".join(fast_import(commit))
    commands = []
    while stream:
        line, _, stream = stream.partition(b"\n")
        if line.startswith(b"data "):
            size = int(line[5:])
            assert stream[size : size + 1] == b"\n"
            stream = stream[size + 1 :]
        commands.append(line.split(b" ")[0])
    assert commands == [b"commit", b"mark", b"author", b"committer", b"data", b"M", b"data", b"", b"get-mark"]


@pytest.mark.parametrize("name", ["main", "feature/x", "v1.0", "ünï", "a-b_c", "x@y"])
def test_valid_branch_names(name: str) -> None:
    assert is_branch_name(name)
