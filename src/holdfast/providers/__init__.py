"""Model providers: encode a conversation for a server, send it, and read the response.

Nothing here decides what to send, retries, keeps state between requests, or knows the journal.
"""
