"""The command line: one module per command group, with its options, help and output. Other packages do the actual work.

The module of a command is imported when it is called, so that `remuda version` and `--help` load no service."""
