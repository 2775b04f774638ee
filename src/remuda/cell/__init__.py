"""The cell: the CI server. It owns projects, pipelines, jobs, runners, job logs (traces) and artifacts.

`service.py` starts and stops a cell and puts its parts together. `http/` has the API endpoints. `core/` makes decisions
without input or output; `store/`, `blobs/`, `traces/` and `git/` read and write data."""
