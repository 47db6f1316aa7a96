//! Metrics of the dns role.

super::metrics! {
    ANSWERS: Counter "cacheboy_dns_answers_total" ["transport", "answer"]
        "Replies, by transport (udp, tcp) and what was answered (steered, spilled, all-down, fixed, minimal-any, referral, nodata, nxdomain, nxname, transfer, notify, refused, notauth, formerr, notimp, badvers, servfail, not-ready, cookie, badcookie).";
    PROJECT_ANSWERS: Counter "cacheboy_dns_project_answers_total" ["project", "answer"]
        "Replies that depend on who asks, by project of the node map and what was answered (steered, spilled, all-down, nodata, servfail).";
    POOL_ANSWERS: Counter "cacheboy_dns_pool_answers_total" ["pool"]
        "Those of them with nodes of one pool of the node map.";
    NODE_ANSWERS: Counter "cacheboy_dns_node_answers_total" ["node"]
        "How often each node of the node map was in such a reply.";
    EVIDENCE_SAMPLES: Counter "cacheboy_dns_evidence_samples_total" ["project", "evidence"]
        "Of one in 64 of the replies that depend on who asks, taken by chance: which entry of the map decided, by project and kind (override, rule, asn, country, continent, default).";
    LOG_LINES: Counter "cacheboy_dns_log_lines_total" ["file"]
        "Lines written to the log of queries.";
    LOG_LOST: Counter "cacheboy_dns_log_lost_lines_total" ["file"]
        "Lines of the log of queries lost because its file took no more, or there was no memory for them.";
    DROPPED: Counter "cacheboy_dns_dropped_total" ["transport", "reason"]
        "Messages without a reply, by transport (udp, tcp) and reason (short, response, limited-answers, limited-negative, limited-errors, limited-refused).";
    CLIENT_SUBNETS: Counter "cacheboy_dns_client_subnets_total" ["transport"]
        "Queries with a client subnet, by transport (udp, tcp).";
    TRUNCATED: Counter "cacheboy_dns_truncated_total" ["transport"]
        "Replies cut to the size that the client takes, by transport (udp, tcp).";
    CUT: Counter "cacheboy_dns_cut_total" ["kind"]
        "Replies over UDP that were only TC or BADCOOKIE because the network had its share, by kind of answer (answers, negative, errors, refused).";
    UDP_ERRORS: Counter "cacheboy_dns_udp_errors_total" ["operation"]
        "Datagrams that the kernel refused, or that a proxy sent without its header, by operation (receive, send, proxy).";
    TCP_CONNECTIONS: Gauge "cacheboy_dns_tcp_connections" []
        "Open TCP connections.";
    TCP_CLOSED: Counter "cacheboy_dns_tcp_closed_total" ["reason"]
        "TCP connections closed, by reason (client, idle, oversize, slow, error, displaced, limit, client-limit, proxy, shutdown).";
    SNAPSHOT_GENERATION: Gauge "cacheboy_dns_snapshot_generation" []
        "Generation of the node map that answers come from (0: none yet).";
    NAMES: Gauge "cacheboy_dns_names" []
        "DNS names that are answered for, those that exist by names below them included.";
    ZONE_FINDINGS: Gauge "cacheboy_dns_zone_findings" []
        "Faults of zone files whose newest content is not in use.";
    ZONE_SETS_LEFT_OUT: Gauge "cacheboy_dns_zone_sets_left_out" ["reason"]
        "Record sets of zone files that are not answered, by reason (of-node-map, taken, steered, alias, delegates, other-zone, no-soa).";
    CLASSES: Gauge "cacheboy_dns_classes" []
        "Classes of client addresses that the steering maps tell apart.";
    SIGNATURES: Counter "cacheboy_dns_signatures_total" ["transport", "result"]
        "Signatures (DNSSEC) that answers needed, by transport (udp, tcp) and result (made, found: was made before, refused: too many in a second of names that clients think up).";
    KEYS: Gauge "cacheboy_dns_keys" ["duty"]
        "Keys of signed zones, by what they do (active, published, withdrawn).";
    SIGNED_ZONES_UNSERVED: Gauge "cacheboy_dns_signed_zones_unserved" []
        "Zones that have keys and are neither in the maps nor in a zone file, so that nothing is signed by these.";
    SIGNATURES_EXPIRY: Gauge "cacheboy_dns_signatures_expiry_timestamp_seconds" []
        "When the first of the signatures in use ends, unix time (0: none was made yet).";
}
