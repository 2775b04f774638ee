import os
import subprocess
import textwrap
from pathlib import Path

import pytest
from tests.support import page_runs
from tests.support.pages import executed_pages, problems_of, problems_of_pages, read_blocks, script_of

PRELUDE = Path(page_runs.__file__).parent / "page_machine/prelude.sh"


def problems(page: str, *, not_run: int = 0) -> list[str]:
    return list(problems_of(textwrap.dedent(page), not_run=not_run))


def execute(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    prelude = PRELUDE.read_text().replace("/run/page/tmp", str(folder))
    return subprocess.run(
        ["bash", "-c", f"{prelude}\n{script_of(textwrap.dedent(page), 'page.md')}"],
        cwd=folder,
        env=os.environ | {"PAGE_MACHINE": str(PRELUDE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pages_of_this_repository_have_no_problem() -> None:
    assert list(problems_of_pages(page_runs.ROOT)) == []
    assert "run-a-manager" in {page.stem for page in executed_pages(page_runs.ROOT)}


def test_a_new_page_that_nothing_executes_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "tests/integration/docs").mkdir(parents=True)
    (tmp_path / "tests/integration/docs/not_run.txt").write_text("# counts\n1 docs/how-to/gone.md\n")
    (tmp_path / "docs/tutorial.md").write_text("```sh\ntrue\n```\n")
    (tmp_path / "docs/how-to/new.md").write_text("<!-- not run: needs a cloud -->\n```sh\nremuda cell serve\n```\n")
    assert list(problems_of_pages(tmp_path)) == [
        "docs/how-to/new.md:1: no block of this page is executed",
        "docs/how-to/new.md:1: 1 blocks are marked `not run`, and tests/integration/docs/not_run.txt counts 0",
        "tests/integration/docs/not_run.txt: there is no page docs/how-to/gone.md",
    ]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```toml\nport = 1\n```\n", "3: nothing executes this toml: name its file"),
        ("Write `a.toml`:\n\n```toml\nport = 1\n```\n", "5: nothing reads a.toml: add <!-- run: COMMAND a.toml -->"),
        ("<!-- add to: a.toml -->\n```toml\nport = 1\n```\n", "4: nothing reads a.toml"),
        ("<!-- not run: cloud -->\n```sh\ntrue\n```\n", "4: say why the block is not run"),
        ("<!-- exit code: two -->\n```sh\ntrue\n```\n", "4: exit code two: must be a number"),
        ("```\nanything\n```\n", "3: name the language of the block"),
        ("```console\n$ true\n```\n", "3: commands are in blocks of `sh`"),
        ("```text\nremuda run\n```\n", "3: looks like commands: make it a block of `sh`"),
    ],
)
def test_a_block_that_nothing_executes_is_a_problem(block: str, problem: str) -> None:
    page = f"<!-- run: true -->\n\n{block}"
    assert problems(page, not_run=block.count("not run:"))[0].startswith(problem)


def test_files_that_are_read_and_output_are_no_problem() -> None:
    page = """\
        Write `a.toml`:

        ```toml
        port = 1
        ```

        ```sh
        cat a.toml
        ```

        ```text
        port = 1
        ```
        """
    assert problems(page) == []


def test_blocks_run_in_one_shell_and_may_be_indented(tmp_path: Path) -> None:
    page = """\
        1. Go there:

            ```sh
            mkdir inner && cd inner
            ```

        <!-- file: deep/er/name.ini -->
        ```ini
        [a]
        ```

        <!-- add to: deep/er/name.ini -->
        ```ini
        b = 1
        ```

        <!-- not run: would end this test -->
        ```sh
        exit 3
        ```

        <!-- run:
        cat deep/er/name.ini
        -->
        """
    result = execute(page, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[a]\nb = 1\n"
    assert (tmp_path / "inner/deep/er/name.ini").exists()
    assert "== page.md:3\n" in result.stderr


def test_a_command_that_fails_ends_the_page(tmp_path: Path) -> None:
    result = execute("```sh\nfalse\n```\n\n```sh\ntouch reached\n```\n", tmp_path)
    assert result.returncode == 1
    assert not (tmp_path / "reached").exists()


def test_an_expected_exit_code_is_compared(tmp_path: Path) -> None:
    assert execute("<!-- exit code: 2 -->\n```sh\n(exit 2)\n```\n", tmp_path).returncode == 0
    result = execute("<!-- exit code: 2 -->\n```sh\nfalse\n```\n", tmp_path)
    assert result.returncode == 1
    assert "must end with 2, they ended with 1" in result.stderr


def test_shown_output_is_compared(tmp_path: Path) -> None:
    page = """\
        ```sh
        cd /
        echo job 12 has started; echo and more; echo job 12 has ended after 3 s
        ```

        <!-- output -->
        ```text
        job 12 has started
        job ... has ended after ...
        ```

        <!-- run: pwd -->
        """
    result = execute(page, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "/\n", "the commands ran in the shell of the page"
    result = execute(page.replace("job ... has", "job 13 has"), tmp_path)
    assert result.returncode == 1
    assert "the page shows 'job 13 has ended after ...', which was not printed" in result.stderr


def test_commands_in_a_second_terminal_go_on_beside_the_page(tmp_path: Path) -> None:
    page = """\
        <!-- terminal: second -->
        ```sh
        echo "until now $$"
        while [ ! -e answer ]; do sleep 0.05; done
        echo answered > question
        ```

        ```sh
        touch answer
        ```

        <!-- run: await grep answered question -->
        """
    result = execute(page, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "until now" in (tmp_path / "second.terminal").read_text()


def test_comments_of_other_kinds_stay_without_effect() -> None:
    assert read_blocks("<!-- a remark -->\n```sh\ntrue\n```\n")[0].kind == ""
