//! Metrics of the health role.

super::metrics! {
    PROBES: Counter "cacheboy_health_probes_total" ["result"]
        "Probes that ended, by result (passed, refused, unreachable, no-answer, closed, not-http, status, too-large).";
    PROBES_RUNNING: Gauge "cacheboy_health_probes_running" []
        "Probes under way.";
    NODES: Gauge "cacheboy_health_nodes" ["family", "state"]
        "Nodes by address family (v4, v6) and published state (up, down, unknown, drained).";
    HOLDING: Gauge "cacheboy_health_holding" []
        "1 while every address fails at once and states are held, because this checker may be the one cut off.";
    MAPS_FINDINGS: Gauge "cacheboy_health_maps_findings" []
        "Findings in the maps folder; above 0 the folder is refused and the older maps stay in use.";
    MAPS_LOADED: Gauge "cacheboy_health_maps_loaded_timestamp_seconds" []
        "Unix time when the maps in use were read; 0 while those of the last run are used.";
    PUBLISHED: Counter "cacheboy_health_node_maps_published_total" []
        "Node maps published.";
    GENERATION: Gauge "cacheboy_health_node_map_generation" []
        "Generation of the node map published last.";
    STATE_WRITE_ERRORS: Counter "cacheboy_health_state_write_errors_total" []
        "Failed attempts to write the node map to the state directory; it is published all the same.";
    READERS: Gauge "cacheboy_health_readers" []
        "Readers of the node map seen since the start.";
    REQUESTS: Counter "cacheboy_health_requests_total" ["status"]
        "Requests answered, by HTTP status (200, 304, 404, 405).";
}
