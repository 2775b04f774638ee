"""Titles as parts of addresses."""

import re
import unittest


def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


class Tests(unittest.TestCase):
    def test_what_is_left(self):
        self.assertEqual(slug("  Everything must go! "), "everything-must-go")
