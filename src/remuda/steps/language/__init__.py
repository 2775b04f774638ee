"""The language of steps: definition files, references and expressions. Pure; the engine acts on what is read here."""
