"""The command: `calculator "1 + 2"` prints 3."""

import sys

from calculator.expression import ExpressionError, evaluate


def main() -> None:
    """Evaluate the arguments as one expression."""
    try:
        value = evaluate(" ".join(sys.argv[1:]))
    except ExpressionError as error:
        sys.exit(f"calculator: {error}")
    sys.stdout.write(f"{value:g}\n")


if __name__ == "__main__":
    main()
