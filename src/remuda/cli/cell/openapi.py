"""`remuda cell openapi`: prints the OpenAPI document of a cell without starting one."""

import sys


def openapi() -> None:
    """Print the OpenAPI 3.1 document of all HTTP calls that a cell answers, as JSON.

    A cell serves the same document at /api/remuda/v1/openapi.json. Client generators and API explorers can read it. No
    cell needs to run.

    Try:

        remuda cell openapi > remuda.json
        remuda cell openapi | jq '.paths | keys'
    """
    import msgspec

    from remuda.cell.service import api_document

    sys.stdout.write(msgspec.json.format(api_document(), indent=2).decode() + "\n")
