import unittest

import textfold


class FoldTests(unittest.TestCase):
    def test_runs_become_one_space(self):
        self.assertEqual(textfold.fold(" a \t b\n\nc "), "a b c")

    def test_lines_may_stay(self):
        self.assertEqual(textfold.fold("a  b\n c", keep_lines=True), "a b\nc")

    def test_nothing_stays_nothing(self):
        self.assertEqual(textfold.fold(""), "")

    @unittest.skip("combining characters are not handled yet")
    def test_combining_characters(self):
        self.assertTrue(textfold.is_folded("a\u0308"))
