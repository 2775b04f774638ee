"""`remuda pipeline`: commands about pipeline files, and about the pipelines of a cell."""
