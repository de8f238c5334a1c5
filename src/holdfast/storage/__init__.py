"""What must survive: journals, leases, inboxes and blobs, in memory or in an SQLite home.

`volatile.VolatileStore` and `sqlite.SqliteStore` are the two implementations of `protocol.ports.Store`; both
pass `testing.conformance_store`. No decision about a run is made here: a store writes what it is handed.
"""
