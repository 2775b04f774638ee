"""The step definition language: definition files, expressions, references and their values. No I/O."""
