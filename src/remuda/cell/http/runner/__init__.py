"""The Runner API: the calls that runner managers and jobs make."""
