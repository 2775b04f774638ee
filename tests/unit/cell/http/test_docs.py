"""The reference page lists every endpoint, and nothing that is not there."""

import re
from pathlib import Path

from remuda.cell.http.edge.app import DIRECT, ENDPOINTS
from remuda.cell.metrics import CellMetrics

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "http.md"
_WHO = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/[^`]*)` \| ([^|]*) \|", re.MULTILINE)
_LISTED = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", re.MULTILINE)


def test_every_endpoint_is_listed() -> None:
    served = {(endpoint.method, endpoint.path.replace(":path}", "}")) for endpoint in (*ENDPOINTS, *DIRECT)}
    assert set(_LISTED.findall(PAGE.read_text())) == served


def test_who_may_call_is_what_the_endpoint_says() -> None:
    said = {(method, path): who for method, path, who in _WHO.findall(PAGE.read_text())}
    declared = {(one.method, one.path.replace(":path}", "}")): str(one.access) for one in ENDPOINTS}
    assert {at: said.get(at) for at in declared} == declared


def test_every_metric_is_listed() -> None:
    page = (PAGE.parent / "generated" / "metrics.md").read_text()
    families = CellMetrics().registry.families
    assert families
    for family in families:
        assert f"`{family().name}" in page
