"""Reads the keywords of jobs and of the top level of a pipeline file: each module reads a few related ones. Functions
read a `node` of the tree and report mistakes to `report`, with the position of the node and `path`, the path of the key
(`build:artifacts:paths`)."""
