"""Test tools for plugin authors and operators: builders of values, fakes that pass the contract suites, and the lab.

Wrappers of real servers, which only the tests of this repository use, are in `tests/support`.
"""
