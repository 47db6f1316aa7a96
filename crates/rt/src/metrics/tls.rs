//! Metrics of hosts that speak TLS.

super::metrics! {
    EXPIRY: Gauge "cacheboy_host_tls_certificate_expiry_timestamp_seconds" ["name"]
        "Unix time when a certificate expires, by its first name (0: no longer in use).";
    RELOADS: Counter "cacheboy_host_tls_certificate_reloads_total" ["result"]
        "Times that certificates were read again, by result (good, failed: the old ones stay).";
    HANDSHAKES: Counter "cacheboy_host_tls_handshakes_total" ["result"]
        "TLS handshakes over TCP, by result (ok, failed, timeout, unknown-name).";
    SESSIONS: Counter "cacheboy_host_tls_sessions_total" ["version", "resumed"]
        "TLS handshakes over TCP that came to their end, by version (1.2, 1.3) and whether the client resumed (yes, no).";
    FETCHES: Counter "cacheboy_host_tls_certificate_fetches_total" ["result"]
        "Times that certificates were fetched from the publisher, by result (good, failed: those that are there stay).";
    UNKNOWN_NAMES: Counter "cacheboy_host_tls_unknown_names_total" []
        "Clients that asked for a name that no certificate has.";
}
