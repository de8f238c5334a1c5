"""The terminal: one module for each family of commands, and the edge that turns errors into sentences.

A command reads its flags, asks the rooms below, and shows the answer; it decides nothing about a session.
"""
