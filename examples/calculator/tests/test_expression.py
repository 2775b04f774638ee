"""What the calculator makes of expressions. Plain unittest: the pipeline has nothing else."""

# ruff: noqa: PT009, PT027

import unittest

from calculator.expression import ExpressionError, evaluate


class EvaluateTest(unittest.TestCase):
    """One expression and its value, or what is wrong with it."""

    def test_values(self) -> None:
        for text, value in {
            "1": 1,
            " 1 + 2 * 3 ": 7,
            "(1 + 2) * 3": 9,
            "10 - 4 - 3": 3,
            "2 ^ 3 ^ 2": 512,
            "-2 ^ 2": -4,
            "7 / 2": 3.5,
            ".5 + 1.": 1.5,
        }.items():
            with self.subTest(text):
                self.assertEqual(evaluate(text), value)

    def test_mistakes(self) -> None:
        for text, message in {
            "": "ends too early",
            "1 +": "ends too early",
            "1 / 0": "division by zero",
            "(1": "not closed",
            "1 2": "did not expect '2'",
            "two": "did not expect 't'",
        }.items():
            with self.subTest(text), self.assertRaisesRegex(ExpressionError, message):
                evaluate(text)
