//! Metrics of the health role.

super::metrics! {
    PROBES: Counter "cacheboy_health_probes_total" ["result"]
        "Probes that ended, by result (passed, refused, unreachable, no-answer, closed, not-http, status, too-large, length, hash, certificate, tls, dns).";
    PROBES_RUNNING: Gauge "cacheboy_health_probes_running" []
        "Probes under way.";
    NODES: Gauge "cacheboy_health_nodes" ["family", "state"]
        "Nodes by address family (v4, v6) and published state (up, down, unknown, drained).";
    HOLDING: Gauge "cacheboy_health_holding" []
        "1 while every address fails at once and states are held, because this checker may be the one cut off.";
    MAPS_FINDINGS: Gauge "cacheboy_health_maps_findings" []
        "Findings in the maps folder; above 0 the folder is refused and the older maps stay in use.";
    MAPS_HELD: Gauge "cacheboy_health_maps_held_percent" []
        "Percent of clients, rounded up, that an edit of the maps would move which waits to be confirmed; 0: none waits.";
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
    PEER_ERRORS: Counter "cacheboy_health_peer_errors_total" ["checker"]
        "Looks at another checker that brought nothing that counts, by its name.";
    WEBHOOK_EVENTS: Counter "cacheboy_health_webhook_events_total" ["result"]
        "Events for the webhook, by result (sent, lost: it took them not after several tries, or there was no room).";
    ACME_ORDERS: Counter "cacheboy_health_acme_orders_total" ["result"]
        "Orders of certificates that ended, by result (issued, refused: by the authority, failed: it could not be asked, or what came cannot be used).";
    ACME_CERTIFICATES: Gauge "cacheboy_health_acme_certificates" ["state"]
        "Names that certificates are ordered for, by state (good, due: to be renewed, expired, none: there is no certificate yet).";
    ACME_EXPIRY: Gauge "cacheboy_health_acme_certificate_expiry_timestamp_seconds" ["name"]
        "Unix time when the certificate ordered for a name expires (0: the name is no longer wanted).";
    ACME_HANDED_OUT: Counter "cacheboy_health_acme_handed_out_total" ["result"]
        "Requests of nodes for certificates, by result (given, guest: it is to have none, stranger: no node of the maps).";
    REQUESTS: Counter "cacheboy_health_requests_total" ["status"]
        "Requests answered, by HTTP status (200, 304, 404, 405, 503).";
}
