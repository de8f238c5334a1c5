"""Storage: journals, leases, inboxes and blobs, in memory or in an SQLite home.

`volatile.VolatileStore` and `sqlite.SqliteStore` implement `protocol.ports.Store`; both pass
`testing.conformance_store`. A store decides nothing about a run: it writes what it gets.
"""
