//! Metrics of the dns role.

super::metrics! {
    ANSWERS: Counter "cacheboy_dns_answers_total" ["transport", "answer"]
        "Replies, by transport (udp, tcp) and what was answered (steered, spilled, all-down, fixed, minimal-any, nodata, nxdomain, refused, formerr, notimp, badvers, servfail, not-ready).";
    DROPPED: Counter "cacheboy_dns_dropped_total" ["transport", "reason"]
        "Messages without a reply, by transport (udp, tcp) and reason (short, response).";
    CLIENT_SUBNETS: Counter "cacheboy_dns_client_subnets_total" ["transport"]
        "Queries with a client subnet, by transport (udp, tcp).";
    TRUNCATED: Counter "cacheboy_dns_truncated_total" ["transport"]
        "Replies cut to the size that the client takes, by transport (udp, tcp).";
    UDP_ERRORS: Counter "cacheboy_dns_udp_errors_total" ["operation"]
        "Datagrams that the kernel refused, by operation (receive, send).";
    TCP_CONNECTIONS: Gauge "cacheboy_dns_tcp_connections" []
        "Open TCP connections.";
    TCP_CLOSED: Counter "cacheboy_dns_tcp_closed_total" ["reason"]
        "TCP connections closed, by reason (client, idle, oversize, slow, error, limit, shutdown).";
    SNAPSHOT_GENERATION: Gauge "cacheboy_dns_snapshot_generation" []
        "Generation of the node map that answers come from (0: none yet).";
    CLASSES: Gauge "cacheboy_dns_classes" []
        "Classes of client addresses that the steering maps tell apart.";
}
