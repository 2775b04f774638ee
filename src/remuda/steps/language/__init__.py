"""The language of steps: definition files, expressions, references and their values. Pure."""
