"""Steps that build and publish images of functions."""
