"""Keeps instance runners of organizations other than the first one restricted to their organization. Those of the first
organization, which every cell has, serve all organizations from now on."""

from alembic import op

from remuda.cell.values import ORGANIZATION_ID
from remuda.model.runner import RunnerType

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        text = "CAST(body AS TEXT)"
        number, kind = (f"json_extract({text}, '$.{name}')" for name in ("organization_id", "type"))
        changed = f"CAST(json_set({text}, '$.organization_ids', json_array({number})) AS BLOB)"
    else:
        text = "convert_from(body, 'UTF8')::jsonb"
        number, kind = f"({text} ->> 'organization_id')::bigint", f"{text} ->> 'type'"
        changed = f"convert_to(jsonb_set({text}, '{{organization_ids}}', jsonb_build_array({number}))::text, 'UTF8')"
    op.execute(
        f"UPDATE runners SET body = {changed} "
        f"WHERE {kind} = '{RunnerType.INSTANCE.value}' AND {number} != {ORGANIZATION_ID}"
    )
