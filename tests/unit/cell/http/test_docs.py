"""The HTTP reference lists every endpoint with its access and every metric, and names only endpoints that exist."""

import re
from pathlib import Path

from remuda.cell.http.edge.app import DIRECT, ENDPOINTS
from remuda.cell.metrics import CellMetrics

REFERENCE = Path(__file__).parents[4] / "docs" / "reference"
PAGE = (REFERENCE / "http.md").read_text()
LIST = (REFERENCE / "generated" / "http.md").read_text()
METHODS = "GET|POST|PUT|PATCH|DELETE"
SERVED = {
    (endpoint.method, endpoint.path.replace(":path}", "}")): str(endpoint.access) for endpoint in (*ENDPOINTS, *DIRECT)
}


def test_every_endpoint_is_listed_with_who_may_call_it() -> None:
    entries = re.findall(rf"^`({METHODS}) (/\S+)`\n: {{3}}(.*?)(?=\n\n|\Z)", LIST, re.MULTILINE | re.DOTALL)
    listed = {
        (method, path): " ".join(text.split()).partition("Who may call it: ")[2].partition(". Status: ")[0]
        for method, path, text in entries
    }
    assert listed == SERVED


def test_the_page_names_only_endpoints_that_exist() -> None:
    mentioned = set(re.findall(rf"`({METHODS}) (/[^`\s]+)`", PAGE))
    assert len(mentioned) > 50
    assert mentioned - SERVED.keys() == set()


def test_every_metric_is_listed() -> None:
    names = (REFERENCE / "generated" / "metrics.md").read_text()
    families = CellMetrics().registry.families
    assert families
    for family in families:
        assert f"`{family().name}" in names
