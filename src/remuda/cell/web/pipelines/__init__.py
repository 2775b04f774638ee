"""What the pages of pipelines compute from the API's answers: critical path, layout of graphs, bars of time. Pure."""
