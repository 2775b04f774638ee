import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.cli.render.graph import By, graph_of
from remuda.cli.render.svg import SHORT_COLUMN, svg
from remuda.pipeline import compile_pipeline
from remuda.pipeline.spec import JobSpec, Pipeline

NAMESPACE = "{http://www.w3.org/2000/svg}"
TEXT = """\
stages: [build, test]
compile: {stage: build, script: [x]}
unit: {stage: test, needs: [compile], parallel: 2, script: [x]}
lint: {stage: test, needs: [], allow_failure: true, script: [x]}
check: {stage: test, needs: [lint], when: manual, script: [x]}
"""


def draw(text: str, by: By = "stage") -> ET.Element:
    return ET.fromstring(svg(graph_of(compile_pipeline(text)), by=by, title="Pipeline"))


def boxes(picture: ET.Element) -> list[tuple[float, float, float, float]]:
    elements = picture.iterfind(f".//{NAMESPACE}rect[@class='box']")
    return [
        (float(b.get("x", 0)), float(b.get("y", 0)), float(b.get("width", 0)), float(b.get("height", 0)))
        for b in elements
    ]


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


@pytest.mark.parametrize("by", ["stage", "needs"])
def test_boxes_edges_and_texts(by: By) -> None:
    picture = draw(TEXT, by)
    assert len(boxes(picture)) == 5
    assert len(picture.findall(f".//{NAMESPACE}path[@class='edge']")) == 3
    texts = [text.text for text in picture.iterfind(f".//{NAMESPACE}text")]
    assert {"compile", "unit 1/2", "may fail", "manual, may fail"} <= set(texts)
    groups = [group.get("class") for group in picture.iterfind(f".//{NAMESPACE}g[@class]")]
    assert sorted(filter(None, groups)) == ["manual", *["on_success"] * 4]


def test_labels_for_screen_readers() -> None:
    picture = draw(TEXT)
    label_ids = picture.get("aria-labelledby", "").split()
    labels = [each.text for name in label_ids for each in picture if each.get("id") == name]
    assert labels == ["Pipeline", "5 jobs in 2 columns, 3 edges"]
    titles = [title.text for title in picture.iterfind(f".//{NAMESPACE}g/{NAMESPACE}title")]
    assert "check; stage test; manual; may fail; needs lint" in titles
    assert "lint; stage test; may fail; starts at once" in titles


def test_the_same_pipeline_gives_the_same_picture() -> None:
    graph = graph_of(compile_pipeline(TEXT))
    assert svg(graph, by="needs", title="t") == svg(graph, by="needs", title="t")


def test_nothing_to_draw() -> None:
    picture = draw("workflow: {rules: [{when: never}]}\njob: {script: [x]}")
    (text,) = picture.iterfind(f".//{NAMESPACE}text")
    assert text.text is not None
    assert "says never" in text.text


@pytest.mark.parametrize("by", ["stage", "needs"])
@pytest.mark.parametrize("count", [1, 2, SHORT_COLUMN + 1, 400])
def test_boxes_do_not_overlap_and_lie_inside_the_picture(by: By, count: int) -> None:
    jobs = "".join(f"j{n}: {{needs: [], script: [x]}}\nk{n}: {{needs: [j{n}], script: [x]}}\n" for n in range(count))
    picture = draw(jobs, by)
    places = boxes(picture)
    assert len(places) == 2 * count
    wide, high = float(picture.get("width", 0)), float(picture.get("height", 0))
    assert all(x > 0 and y > 0 and x + w < wide and y + h < high for x, y, w, h in places)
    sample = sorted(places)[: SHORT_COLUMN * 4]
    assert not any(overlap(a, b) for index, a in enumerate(sample) for b in sample[:index])
    assert wide / high < 40
    assert high / wide < 40


def test_two_thousand_jobs() -> None:
    jobs = "".join(f"job {n}: {{needs: [{f'job {n - 1}' if n % 4 else ''}], script: [x]}}\n" for n in range(2000))
    text = svg(graph_of(compile_pipeline(jobs)), by="needs", title="large")
    assert len(boxes(ET.fromstring(text))) == 2000
    assert len(text) < 2_000_000


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(), min_size=1, max_size=60), min_size=1, max_size=5, unique=True), st.text())
def test_any_name_gives_well_formed_xml(names: list[str], stage: str) -> None:
    jobs = tuple(JobSpec(name=name, stage=stage, stage_index=0, script=("x",), line=1, needs=()) for name in names)
    graph = graph_of(Pipeline(stages=(stage,), variables={}, jobs=jobs))
    picture = ET.fromstring(svg(graph, by="stage", title=names[0]))
    assert len(boxes(picture)) == len(names)
    for text in picture.iterfind(f".//{NAMESPACE}text"):
        assert not re.search(r"[\x00-\x1f]", text.text or "")
