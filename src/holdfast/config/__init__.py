"""Settings: where they are read from, what each may be, and where each value came from.

What a setting does is the business of the room that uses it; rooms are handed their values, never a Config.
"""
