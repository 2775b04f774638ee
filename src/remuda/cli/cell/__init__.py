"""The commands `remuda cell ...`, which serve and maintain a cell; one module for a few related commands."""
