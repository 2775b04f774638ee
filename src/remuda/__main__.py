"""`python -m remuda` is the `remuda` command."""

from remuda.cli.main import main

if __name__ == "__main__":
    main()
