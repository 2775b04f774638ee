"""`remuda version`. A module of its own, because it must import nothing else."""

from remuda import __version__


def version() -> None:
    """Print the version.

    Try:

        remuda version
    """
    print(f"remuda {__version__}")
