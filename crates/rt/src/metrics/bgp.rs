//! Metrics of the collector of routes.

super::metrics! {
    SESSION_UP: Gauge "cacheboy_bgp_session_up" ["peer"]
        "1 while the session with the peer is established.";
    SESSION_ENDS: Counter "cacheboy_bgp_session_ends_total" ["peer", "end"]
        "Connections with the peer that ended, by why (closed, replaced, or the word of a notification of either side).";
    REFUSED: Counter "cacheboy_bgp_connections_refused_total" []
        "Connections from addresses that are no peer's, or that a peer has too many of.";
    MESSAGES: Counter "cacheboy_bgp_messages_total" ["peer", "kind"]
        "Messages received, by kind (open, update, notification, keepalive, refresh).";
    ANNOUNCED: Counter "cacheboy_bgp_announced_total" ["peer"]
        "Routes announced, those that were known included.";
    WITHDRAWN: Counter "cacheboy_bgp_withdrawn_total" ["peer"]
        "Routes withdrawn, malformed announcements included.";
    FAULTS: Counter "cacheboy_bgp_faults_total" ["what", "remedy"]
        "Malformed attributes that were borne, by what is wrong (flags, length, value, repeated, missing, overrun, as-set) and what was done (discard, withdraw).";
    ROUTES: Gauge "cacheboy_bgp_routes" ["peer", "family"]
        "Routes of the peer or file in the table, by address family (v4, v6).";
    MRT_ERRORS: Counter "cacheboy_bgp_mrt_errors_total" ["file"]
        "Times that a file of routes was not taken over: `/status` says why.";
    VIEW_ROUTES: Gauge "cacheboy_bgp_view_routes" ["view", "family"]
        "Best routes of the view, by address family (v4, v6).";
    VIEW_VERSION: Gauge "cacheboy_bgp_view_version" ["view"]
        "How often the view has changed since the start.";
    ATTRIBUTE_SETS: Gauge "cacheboy_bgp_attribute_sets" []
        "Different sets of attributes in the table.";
    COMMIT_MICROSECONDS: Gauge "cacheboy_bgp_commit_microseconds" []
        "How long deciding anew took the last time.";
    REQUESTS: Counter "cacheboy_bgp_requests_total" ["status"]
        "Requests answered, by HTTP status (200, 304, 400, 404, 405, 503).";
}
