"""The interfaces of older tools on top of this one: each module says what is the same, what differs and why, and what is not there.

Importing one of them imports nothing heavy and changes nothing in the program.
"""
