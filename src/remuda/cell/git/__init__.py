"""Access to the git repositories of a cell: the interface (`port`) and its implementation by the `git` program."""
