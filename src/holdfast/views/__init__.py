"""Readings of records: what a session was, what it cost, how it is told, and whether it would be decided again.

Pure: every reading takes records (or a state, a row) and gives data or lines. Who reads them from a store, and
where they are shown, belongs to the rooms above.
"""
