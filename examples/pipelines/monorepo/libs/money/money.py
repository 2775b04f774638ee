"""Amounts in cents, read and written with a point."""

import unittest


def cents(text):
    units, _, rest = text.partition(".")
    return int(units) * 100 + int(rest.ljust(2, "0"))


def text(amount):
    return f"{amount // 100}.{amount % 100:02}"


class Tests(unittest.TestCase):
    def test_there_and_back(self):
        for amount in (0, 5, 99, 100, 12345):
            self.assertEqual(cents(text(amount)), amount)
