"""Processes of steps: how they are started, limited, watched and ended."""
