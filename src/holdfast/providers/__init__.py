"""Models behind one border: how a conversation is written for a server, sent, and read back.

Nothing here decides what to send, retries, keeps state between calls, or knows the journal.
"""
