import pytest

from remuda.pipeline.predefined_variables import of_commit


@pytest.mark.parametrize(
    ("message", "title", "description"),
    [
        ("Fix it", "Fix it", ""),
        ("Fix it\n\nBecause.\nReally.\n", "Fix it", "Because.\nReally."),
        ("x" * 100 + "\n\nBecause.", "x" * 100, "x" * 100 + "\n\nBecause."),
        ("", "", ""),
    ],
)
def test_variables_of_a_commit(message: str, title: str, description: str) -> None:
    values = of_commit(message=message, author="A <a@example.com>", timestamp="1970-01-01T00:00:00.000Z")
    assert (values["CI_COMMIT_TITLE"], values["CI_COMMIT_DESCRIPTION"]) == (title, description)
    assert (values["CI_COMMIT_AUTHOR"], values["CI_COMMIT_TIMESTAMP"]) == (
        "A <a@example.com>",
        "1970-01-01T00:00:00.000Z",
    )
    assert values["CI_COMMIT_MESSAGE_IS_TRUNCATED"] == "false"


def test_a_long_commit_message_is_truncated() -> None:
    values = of_commit(message="ü" * 100_000, author="", timestamp="1970-01-01T00:00:00.000Z")
    assert values["CI_COMMIT_MESSAGE"] == "ü" * 50_000
    assert values["CI_COMMIT_MESSAGE_IS_TRUNCATED"] == "true"
