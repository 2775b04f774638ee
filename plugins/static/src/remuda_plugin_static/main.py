"""The program `fleeting-plugin-static`, which a runner manager starts."""

import sys

from remuda.fleeting import serve
from remuda_plugin_static.group import StaticGroup


def main() -> None:
    sys.exit(serve(StaticGroup()))
