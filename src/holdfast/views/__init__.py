"""Pure readings of records: what happened in a session, what it cost, and whether it replays the same.

Every function takes records, a state or a row, and returns data or lines. Reading a store and showing the result
are the business of the rooms above.
"""
