"""The command line: one module per family of commands, and the edge that turns errors into sentences.

A command reads its flags, calls the rooms below and shows the result. It makes no decision about a session.
"""
