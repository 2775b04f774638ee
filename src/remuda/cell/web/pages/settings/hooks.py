"""Webhooks of a project or group: their list, and one webhook with its last deliveries."""

import json

from starlette.responses import Response

from remuda.cell.web.pages.settings.frame import Place, Settings, render
from remuda.cell.web.places import segment
from remuda.cell.web.visit import Visit

pages = Settings()
EVENTS = {
    "push_events": "Pushes",
    "tag_push_events": "Tags",
    "pipeline_events": "Pipelines",
    "job_events": "Jobs",
}
"""The events that a cell sends."""
_DELIVERIES = 30
_SHOWN_CHARACTERS = 20_000
"""Of the body of a request or answer."""


@pages.section("hooks")
async def show_hooks(visit: Visit, place: Place) -> Response:
    hooks = await visit.api.get_all(f"{place.api}/hooks")
    return render(visit, place, "settings_hooks.html", "hooks", hooks=hooks, events=EVENTS)


@pages.section("hooks", "/{hook_id}")
async def show_hook(visit: Visit, place: Place) -> Response:
    address = f"{place.api}/hooks/{segment(visit.text('hook_id'))}"
    hook = await visit.api.get(address)
    deliveries = await visit.api.get(f"{address}/events", per_page=_DELIVERIES)
    for delivery in deliveries:
        text = json.dumps(delivery["request_data"], indent=2, ensure_ascii=False)
        delivery["request_text"] = _cut(text)
        delivery["response_body"] = _cut(delivery["response_body"])
    return render(
        visit,
        place,
        "settings_hook.html",
        "hooks",
        hook=hook,
        hook_api=address,
        deliveries=deliveries,
        events=EVENTS,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}\n... ({len(text)} characters)"
