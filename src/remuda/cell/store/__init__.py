"""Persistent storage of a cell, except for job logs (traces) and blobs: abstract ports, and one folder per database
(SQLite, PostgreSQL, memory).
"""
