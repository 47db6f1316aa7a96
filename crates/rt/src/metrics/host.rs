//! Metrics that every host has.

super::metrics! {
    NODE_MAP_GENERATION: Gauge "cacheboy_host_node_map_generation" []
        "Generation of the node map in use (0: none yet).";
    NODE_MAP_CONFIRMED: Gauge "cacheboy_host_node_map_confirmed_timestamp_seconds" []
        "Unix time when a publisher last confirmed or sent the node map.";
    PHASE: Gauge "cacheboy_host_phase" []
        "How far the end of the process has come (0 serving, 1 leaving, 2 yielded, 3 draining, 4 cut).";
    HANDOVERS: Counter "cacheboy_host_handovers_total" ["result"]
        "Attempts to hand over to a successor, by result (done, refused, died, late, spawn, protocol, yield, leaving, first-process).";
    NODE_MAP_ERRORS: Counter "cacheboy_host_node_map_errors_total" ["reason"]
        "Node map polls that failed, by reason (fetch, status, invalid, older, ahead).";
    STEERING_ERRORS: Counter "cacheboy_host_steering_errors_total" ["source"]
        "Data for steering refused while the old stays in use, by source (node-map, location).";
}
