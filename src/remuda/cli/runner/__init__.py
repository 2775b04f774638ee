"""`remuda runner`: commands about the runners of a cell."""
