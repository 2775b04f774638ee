from pathlib import Path

from remuda.steps.outputs import LARGEST_BYTES, read_outputs


def test_the_last_value_of_a_name_counts_and_texts_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    path.write_text(
        '{"name": "hit", "value": false}\n{"name": "hit", "value": true}\n{"name": "key", "value": "a secret"}\n'
        '{"name": "files", "value": 3}\n'
    )
    found = read_outputs(path, lambda text: text.replace("secret", "[MASKED]"))
    assert found == {"hit": True, "key": "a [MASKED]", "files": 3}


def test_what_is_no_output_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    lines = ["", "no json", "[1]", '{"value": 1}', '{"name": "a-b", "value": 1}', '{"name": "list", "value": [1]}']
    lines += ['{"name": "good", "value": 1}', "[" * 5000, "x" * LARGEST_BYTES, '{"name": "late", "value": 1}']
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    assert read_outputs(path, str) == {"good": 1}
    assert read_outputs(tmp_path / "none", str) == {}
