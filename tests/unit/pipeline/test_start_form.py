"""What a user may set when starting a pipeline: the inputs and described variables of its file."""

from remuda.pipeline import MemorySources, read_start_form

FILE = """
spec:
  inputs:
    place: {options: [test, live], default: test, description: Where}
    count: {type: number, default: 3}
    names: {type: array, default: [a, 2]}
    title: {regex: '^[a-z]+$'}
    size:
      rules:
        - if: $[[ inputs.place ]] == "live"
          options: [big]
          default: big
---
variables:
  PLAIN: x
  LEVEL: {value: low, options: [low, high], description: How much}
  FORCE: {value: true, description: Really}
job: {script: ["echo $[[ inputs.title ]]"]}
"""


def test_inputs_and_variables() -> None:
    form = read_start_form(FILE)
    assert [(each.name, each.type, each.default) for each in form.inputs] == [
        ("place", "string", "test"),
        ("count", "number", 3),
        ("names", "array", ["a", 2]),
        ("title", "string", None),
        ("size", "string", None),
    ]
    place, _, _, title, size = form.inputs
    assert (place.options, place.description, place.has_default) == (("test", "live"), "Where", True)
    assert (title.regex, title.has_default) == ("^[a-z]+$", False)
    assert size.depends_on == ("place",)
    assert [(each.name, each.value, each.options) for each in form.variables] == [
        ("LEVEL", "low", ("low", "high")),
        ("FORCE", "true", ()),
    ]
    assert form.mistakes == ()


def test_inputs_of_other_files_are_part_of_the_form() -> None:
    text = "spec: {include: [inputs.yml]}\n---\ninclude: more.yml\njob: {script: [x]}\n"
    files = {
        "inputs.yml": "inputs: {place: {default: here}}\n",
        "more.yml": "spec: {inputs: {inner: {default: x}}}\n---\nvariables: {A: {value: b, description: d}}\n",
    }
    form = read_start_form(text, sources=MemorySources(files=files))
    assert [each.name for each in form.inputs] == ["place"]
    assert [each.name for each in form.variables] == ["A"]


def test_a_file_that_cannot_be_read() -> None:
    form = read_start_form("a: [\n")
    assert form.inputs == ()
    assert form.mistakes[0].line >= 1
    assert read_start_form("[]").inputs == ()
