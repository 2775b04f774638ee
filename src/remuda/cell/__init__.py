"""The cell: owns projects, pipelines, jobs, runners, traces and artifacts of its organizations.

`core/` decides, `ports.py` names what it needs, `adapters/` fulfil that, `http/` is the edge, `service.py` supervises.
"""
