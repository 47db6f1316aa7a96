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
        "Node map polls that failed, by reason (fetch, status, signature, invalid, older, ahead).";
    STEERING_GUARDED: Counter "cacheboy_host_steering_guarded_total" ["project", "how"]
        "Answers that max_share changed, by how (spilled: somebody above its share was passed over; overruled: nobody had room, so answered all the same).";
    ROUTES: Gauge "cacheboy_host_routes" ["view", "family"]
        "Routes of the routing table that is followed, by view and family (v4, v6).";
    ROUTES_UP: Gauge "cacheboy_host_routes_up" ["view"]
        "Whether a session of the view is up (1), by what the publisher says.";
    ROUTES_CONFIRMED: Gauge "cacheboy_host_routes_confirmed_timestamp_seconds" []
        "Unix time when the publisher last confirmed or sent routes.";
    ROUTES_ERRORS: Counter "cacheboy_host_routes_errors_total" ["reason"]
        "Polls for routes that failed, by reason (fetch, status, invalid, gap, defect).";
    DATABASES_HELD: Gauge "cacheboy_host_databases_held_percent" []
        "Percent of known addresses, rounded up, that changed location databases would move which wait for a person's word; 0: none wait.";
    ROUTES_WAITING: Gauge "cacheboy_host_routes_waiting_percent" ["family"]
        "Percent of known addresses, rounded up, that a change of routes moves and that wait for the next steps, by family.";
    STEERING_ERRORS: Counter "cacheboy_host_steering_errors_total" ["source"]
        "Data for steering refused while the old stays in use, by source (node-map, location, routes).";
}
