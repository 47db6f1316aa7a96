//! Metrics of hosts that speak TLS.

super::metrics! {
    EXPIRY: Gauge "cacheboy_host_tls_certificate_expiry_timestamp_seconds" ["name"]
        "Unix time when a certificate expires, by its first name (0: no longer in use).";
    RELOADS: Counter "cacheboy_host_tls_certificate_reloads_total" ["result"]
        "Times that certificates were read again, by result (good, failed: the old ones stay).";
    UNKNOWN_NAMES: Counter "cacheboy_host_tls_unknown_names_total" []
        "Clients that asked for a name that no certificate has.";
}
