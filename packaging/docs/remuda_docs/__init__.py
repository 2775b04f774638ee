"""The documentation of Remuda, in the folder `html` of this package. `remuda docs` finds it; there is no code."""
