"""Persistent storage of a cell, except for job logs and blobs: ports, and one folder per database."""
