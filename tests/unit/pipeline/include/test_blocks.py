import pytest

from remuda.pipeline.include.blocks import find_blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("$[[]]", [""]),
        ("a $[[ b ]] c $[[ d ]]", [" b ", " d "]),
        ("$[[ a $[[ b ]] ]]", [" a $[[ b "]),
        ("]] $[[ a", []),
        ("$[[ a ] ]]]", [" a ] "]),
    ],
)
def test_blocks_of_a_text(text: str, blocks: list[str]) -> None:
    assert [text[begin:end] for begin, end in find_blocks(text, "$[[", "]]")] == blocks
