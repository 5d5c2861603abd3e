"""Interfaces of older tools on top of this package.

Each module lists the names that work the same, the differences and their reasons, and the unsupported names.

Importing a module imports nothing heavy and changes nothing in the program.
"""
