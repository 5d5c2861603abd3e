"""Compiled recorder of short recipes (`recipe.c`), and the adoption of the ones that turn out to be long."""
