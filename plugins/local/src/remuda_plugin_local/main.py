"""The program `fleeting-plugin-local`, which a runner manager starts."""

import sys

from remuda.fleeting import serve
from remuda_plugin_local.group import LocalGroup


def main() -> None:
    sys.exit(serve(LocalGroup()))
