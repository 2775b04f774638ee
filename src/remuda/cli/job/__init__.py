"""`remuda job`: commands about the jobs of a cell."""
