"""Test tools for plugin authors and operators: builders of test values, fakes that pass the contract test suites, and
the lab, which runs a whole system.

Wrappers of real servers, which only the tests of this repository use, are in `tests/support`.
"""
