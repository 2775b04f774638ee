"""Everything that must survive the process, except traces and blobs: ports, and one folder for each database."""
