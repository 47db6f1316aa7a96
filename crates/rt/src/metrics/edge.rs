//! Metrics of the edge role.

super::metrics! {
    REQUESTS: Counter "cacheboy_edge_requests_total" ["result"]
        "Requests of clients, by result (hit, partial, miss, revalidated, stale, pass, negative, error, refused, health).";
    SENT: Counter "cacheboy_edge_sent_bytes_total" []
        "Body bytes handed to clients.";
    CONNECTIONS: Gauge "cacheboy_edge_connections" []
        "Connections of clients open now.";
    ACCEPTED: Gauge "cacheboy_edge_connections_accepted" []
        "Connections of clients accepted since the start.";
    BROKEN_OFF: Gauge "cacheboy_edge_responses_broken_off" []
        "Responses broken off because their body could not go on, since the start.";
    MALFORMED: Gauge "cacheboy_edge_connections_malformed" []
        "Connections closed for a request that is not HTTP or too large, since the start.";
    UPSTREAM_REQUESTS: Counter "cacheboy_edge_upstream_requests_total" ["project", "master"]
        "Requests to masters.";
    UPSTREAM_BYTES: Counter "cacheboy_edge_upstream_bytes_total" ["project", "master"]
        "Body bytes received from masters.";
    UPSTREAM_ERRORS: Counter "cacheboy_edge_upstream_errors_total" ["project", "master", "kind"]
        "Failed requests to masters, by kind (connect, connect-timeout, first-byte-timeout, between-bytes-timeout, truncated, status, changed, protocol, disk).";
    FILLS: Counter "cacheboy_edge_fills_total" []
        "Representations begun in the store.";
    FILLED: Counter "cacheboy_edge_filled_bytes_total" []
        "Bytes of blocks written to the store.";
    IN_FLIGHT: Gauge "cacheboy_edge_upstream_in_flight" []
        "Fill requests to masters that hold a block buffer now.";
    STORE_OBJECTS: Gauge "cacheboy_edge_store_objects" ["store"]
        "Objects held, by store folder.";
    STORE_BYTES: Gauge "cacheboy_edge_store_bytes" ["store"]
        "Bytes taken on the disk, by store folder.";
    STORE_CAPACITY: Gauge "cacheboy_edge_store_capacity_bytes" ["store"]
        "Bytes the store may take, by store folder.";
    STORE_EVICTIONS: Gauge "cacheboy_edge_store_evictions" ["store"]
        "Objects evicted since the start, by store folder.";
    STORE_CORRUPT: Gauge "cacheboy_edge_store_corrupt_blocks" ["store"]
        "Blocks with a wrong checksum since the start, by store folder.";
    STORE_WRITE_ERRORS: Gauge "cacheboy_edge_store_write_errors" ["store"]
        "Failed writes since the start, by store folder.";
}
