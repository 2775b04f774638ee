"""Stores the data of a cell, except for job logs and files (blobs). `ports` has the interfaces; `sqlite`, `postgres`
and `memory` implement them."""
