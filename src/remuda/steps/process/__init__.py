"""Starts, limits, monitors and ends the operating system processes of steps."""
