"""`remuda version`: a separate module, because it must start without importing anything else."""

from remuda import __version__


def version() -> None:
    """Print the version.

    Try:

        remuda version
    """
    print(f"remuda {__version__}")
