//! Metrics of the edge role.

super::metrics! {
    REQUESTS: Counter "cacheboy_edge_requests_total" ["result"]
        "Requests of clients, by result (hit, partial, miss, revalidated, stale, pass, negative, absent, error, refused, redirected, health).";
    REFUSED: Counter "cacheboy_edge_refused_total" ["reason"]
        "Requests refused, by reason (bad-host, no-node-map, unknown-host, unknown-method, method-not-allowed, loop, bad-target, unknown-coding, broken-content, only-if-cached, too-many, repeat).";
    REDIRECTS: Counter "cacheboy_edge_redirects_total" ["project", "why"]
        "Clients sent to another node (302), by project and why (avoid: they cannot use this one; missteered: they belong to another pool; bill: what the sponsor pays for is used up).";
    MISSTEERED: Counter "cacheboy_edge_missteered_requests_total" ["project"]
        "Requests, by project, of clients that by their own address belong to a pool in which this node is not.";
    MISSTEERED_BYTES: Counter "cacheboy_edge_missteered_bytes_total" ["project"]
        "Body bytes handed to such clients, by project.";
    SENT: Counter "cacheboy_edge_sent_bytes_total" []
        "Bytes of content that have left to clients.";
    PROJECT_REQUESTS: Counter "cacheboy_edge_project_requests_total" ["project", "result"]
        "Answers that have ended, by project (none: of none of ours) and result.";
    PROJECT_SENT: Counter "cacheboy_edge_project_sent_bytes_total" ["project", "result"]
        "Bytes of content of answers that have ended, by project and result.";
    COUNTRY_REQUESTS: Counter "cacheboy_edge_country_requests_total" ["country"]
        "Answers that have ended, by country of the client.";
    COUNTRY_SENT: Counter "cacheboy_edge_country_sent_bytes_total" ["country"]
        "Bytes of content of answers that have ended, by country of the client.";
    ASN_REQUESTS: Counter "cacheboy_edge_asn_requests_total" ["asn"]
        "Answers that have ended, by AS of the client: the 256 largest, other and unknown.";
    ASN_SENT: Counter "cacheboy_edge_asn_sent_bytes_total" ["asn"]
        "Bytes of content of answers that have ended, by AS of the client, likewise.";
    WAY_CONNECTIONS: Counter "cacheboy_edge_way_connections_total" ["asn"]
        "Connections that have ended after something was sent, by AS of the client, likewise.";
    WAY_ACKED: Counter "cacheboy_edge_way_acked_bytes_total" ["asn"]
        "Of these connections, bytes that clients acknowledged.";
    WAY_SENT: Counter "cacheboy_edge_way_sent_segments_total" ["asn"]
        "Of these connections, segments (QUIC: packets) sent, those sent again among them.";
    WAY_RETRANSMITTED: Counter "cacheboy_edge_way_retransmitted_segments_total" ["asn"]
        "Of these connections, segments sent again (QUIC: packets lost).";
    WAY_MIN_RTT: Counter "cacheboy_edge_way_min_rtt_microseconds_total" ["asn"]
        "Of these connections, the sum of their shortest round trips.";
    WAY_RATED: Counter "cacheboy_edge_way_rated_connections_total" ["asn"]
        "Of these connections, those with a measured rate of delivery.";
    WAY_RATE: Counter "cacheboy_edge_way_delivery_bytes_per_second_total" ["asn"]
        "Of the connections with a measured rate of delivery, the sum of the rates.";
    LOG_LINES: Counter "cacheboy_edge_log_lines_total" ["file"]
        "Lines written to an access log.";
    LOG_LOST: Counter "cacheboy_edge_log_lost_lines_total" ["file"]
        "Lines of an access log lost because its file took no more, or there was no memory for them.";
    CONNECTIONS: Gauge "cacheboy_edge_connections" []
        "Connections of clients open now.";
    CONNECTIONS_MAX: Gauge "cacheboy_edge_connections_max" []
        "Connections of clients that may be open at once; further ones wait in the kernel's queue.";
    CONNECTIONS_FULL: Counter "cacheboy_edge_connections_full_total" []
        "Clients that waited because as many connections were open as may be.";
    SHED: Counter "cacheboy_edge_connections_shed_total" ["reason"]
        "Connections closed because others waited for their places, by reason (idle: nothing was answered on it; slow: its client took less than 250 bytes a second for a minute).";
    ACCEPTED: Counter "cacheboy_edge_connections_accepted_total" []
        "Connections of clients accepted.";
    BROKEN_OFF: Counter "cacheboy_edge_responses_broken_off_total" []
        "Responses broken off because their body could not go on.";
    H2_CONNECTIONS: Counter "cacheboy_edge_http2_connections_total" []
        "Connections of clients in HTTP/2.";
    H2_REQUESTS: Counter "cacheboy_edge_http2_requests_total" []
        "Requests of clients in HTTP/2.";
    H2_RESETS: Counter "cacheboy_edge_http2_resets_total" []
        "Responses in HTTP/2 whose clients did not want all of them.";
    H2_GOAWAYS: Counter "cacheboy_edge_http2_goaways_total" ["reason"]
        "Connections in HTTP/2 that were told to end (GOAWAY), by reason (idle, leaving, flood, fault, client).";
    MALFORMED: Counter "cacheboy_edge_connections_malformed_total" []
        "Connections closed for a request that is not HTTP or too large.";
    TIMEOUTS: Counter "cacheboy_edge_connections_timed_out_total" []
        "Connections closed because the head of a request did not come in time.";
    STALLED: Counter "cacheboy_edge_responses_stalled_total" []
        "Connections, and single responses in HTTP/2 and HTTP/3, ended because their clients took nothing for too long.";
    CUT: Counter "cacheboy_edge_connections_cut_total" []
        "Connections cut at the end of the process because their time was over.";
    H3_CONNECTIONS: Counter "cacheboy_edge_http3_connections_total" []
        "Connections of clients in HTTP/3.";
    H3_REQUESTS: Counter "cacheboy_edge_http3_requests_total" []
        "Requests of clients in HTTP/3.";
    H3_RESETS: Counter "cacheboy_edge_http3_resets_total" []
        "Requests in HTTP/3 that clients took back before they had all of the answer.";
    H3_RETRIES: Counter "cacheboy_edge_http3_retries_total" []
        "Handshakes in HTTP/3 whose clients had to prove their address first, because many were open.";
    H3_REFUSED: Counter "cacheboy_edge_http3_refused_total" []
        "Connections in HTTP/3 refused because as many connections were open as may be: clients go on over TCP.";
    H3_HANDSHAKES_FAILED: Counter "cacheboy_edge_http3_handshakes_failed_total" []
        "Handshakes in HTTP/3 that failed, were broken off or took too long.";
    CLIENTS_WAITED: Counter "cacheboy_edge_client_requests_waited_total" []
        "Requests that waited because as many of their client were answered as may be (requests_per_client).";
    REPEATS_PACED: Counter "cacheboy_edge_repeats_paced_total" []
        "Responses paced because their network had the object often today (copies_per_day).";
    REPEATS_FORGOTTEN: Counter "cacheboy_edge_repeats_forgotten_total" []
        "Networks of today whose copies of an object were forgotten for want of room in the table.";
    UPSTREAM_REQUESTS: Counter "cacheboy_edge_upstream_requests_total" ["project", "master"]
        "Requests to masters and parents.";
    UPSTREAM_BYTES: Counter "cacheboy_edge_upstream_bytes_total" ["project", "master"]
        "Body bytes received from masters and parents.";
    UPSTREAM_OPENED: Counter "cacheboy_edge_upstream_connections_opened_total" ["project", "master"]
        "Connections to masters and parents opened.";
    UPSTREAM_IDLE: Gauge "cacheboy_edge_upstream_connections_idle" ["project", "master"]
        "Connections to masters and parents kept for the next request.";
    UPSTREAM_QUEUED: Counter "cacheboy_edge_upstream_queued_total" ["project", "master"]
        "Requests that waited because a master had as many as it may.";
    UPSTREAM_QUEUED_MS: Counter "cacheboy_edge_upstream_queued_milliseconds_total" ["project", "master"]
        "Time for which requests waited because a master had as many as it may.";
    PARENT_BYPASSES: Counter "cacheboy_edge_parent_bypasses_total" ["project"]
        "Requests to masters by an edge that has parents to fill from.";
    UPSTREAM_ERRORS: Counter "cacheboy_edge_upstream_errors_total" ["project", "master", "kind"]
        "Failed requests to masters, by kind (connect, connect-timeout, tls-certificate, tls, busy, client, first-byte-timeout, between-bytes-timeout, truncated, status, parent, changed, protocol, disk, slow, digest-mismatch).";
    HEDGES: Counter "cacheboy_edge_hedges_total" ["project", "result"]
        "Second questions because a master let a client wait, by result (asked, of these won: answered first; refused: not asked, there had been too many).";
    MASTERS_DISAGREE: Counter "cacheboy_edge_masters_disagree_total" ["project", "master"]
        "Answers of masters that name something held otherwise than the master it came from.";
    DIGESTS: Counter "cacheboy_edge_digest_checks_total" ["result"]
        "Whole representations compared with the digest their master announced, by result (good, mismatch, unread: no longer held in whole, skipped: too many at once).";
    FILLS: Counter "cacheboy_edge_fills_total" []
        "Representations begun in the store.";
    FILLED: Counter "cacheboy_edge_filled_bytes_total" ["reason"]
        "Bytes of blocks written to the store, by reason (demand: a client waited, ahead: a client will come to it, completion: the whole object is to be had).";
    PAST_STORE: Counter "cacheboy_edge_past_store_total" []
        "Transfers that went on with bytes straight from a master because the store took no more.";
    IN_FLIGHT: Gauge "cacheboy_edge_upstream_in_flight" []
        "Fill requests to masters that hold a block buffer now.";
    DRAINED: Gauge "cacheboy_edge_drained" []
        "Whether a person has drained this node (1), so that its health page says draining.";
    BILL_RATE: Gauge "cacheboy_edge_bill_rate_bits_per_second" ["direction"]
        "What the bill counted in the last second, by direction (received, sent).";
    BILL_P95: Gauge "cacheboy_edge_bill_p95_bits_per_second" []
        "95th percentile of the month's 5-minute rates so far, of the larger direction.";
    BILL_SPENT: Gauge "cacheboy_edge_bill_samples_spent" []
        "5-minute samples of the month above the commit.";
    BILL_FREE: Gauge "cacheboy_edge_bill_samples_free" []
        "5-minute samples of the month that may be above the commit.";
    BILL_USED: Gauge "cacheboy_edge_bill_used_bytes" []
        "Bytes of the month, both directions, where those are billed.";
    BILL_LIMITED: Gauge "cacheboy_edge_bill_limited" []
        "1 while the commit limits what may be sent.";
    BILL_ALLOWED: Gauge "cacheboy_edge_bill_allowed_bits_per_second" []
        "What may be sent while the commit limits it; 0 without a limit.";
    BILL_BLIND: Counter "cacheboy_edge_bill_blind_seconds_total" []
        "Seconds in which the counters of the bill's interface could not be read.";
    CAP_RATE: Gauge "cacheboy_edge_cap_rate_bits_per_second" ["cap"]
        "Rate of a cap of the node, by its number in the map.";
    CAP_WAITING: Gauge "cacheboy_edge_cap_waiting" ["cap"]
        "Responses that wait for a cap now, by its number in the map.";
    CAP_BYTES: Counter "cacheboy_edge_cap_granted_bytes_total" ["cap"]
        "Bytes that a cap let through, by its number in the map.";
    PURGES: Gauge "cacheboy_edge_purges" []
        "Purges in effect.";
    PURGED: Counter "cacheboy_edge_purged_objects_total" ["mode"]
        "Held objects that were asked for and found purged, by mode (soft: confirmed first; hard: dropped).";
    STORE_OBJECTS: Gauge "cacheboy_edge_store_objects" ["store"]
        "Objects held, by store folder.";
    STORE_BYTES: Gauge "cacheboy_edge_store_bytes" ["store"]
        "Bytes taken on the disk, by store folder.";
    STORE_CAPACITY: Gauge "cacheboy_edge_store_capacity_bytes" ["store"]
        "Bytes the store may take, by store folder.";
    STORE_FAILED: Gauge "cacheboy_edge_store_failed" ["store"]
        "1 while a store is dropped because its disk fails, by store folder.";
    STORE_EVICTIONS: Counter "cacheboy_edge_store_evictions_total" ["store"]
        "Objects evicted, by store folder.";
    STORE_CORRUPT: Counter "cacheboy_edge_store_corrupt_blocks_total" ["store"]
        "Blocks with a wrong checksum, by store folder.";
    STORE_WRITE_ERRORS: Counter "cacheboy_edge_store_write_errors_total" ["store"]
        "Failed writes, syncs and removals, by store folder.";
    GROUP_MEMBERS: Gauge "cacheboy_edge_group_members" ["project", "group"]
        "Members of a group of index files.";
    GROUP_LOOKS: Counter "cacheboy_edge_group_looks_total" ["project", "group"]
        "Looks at members: each asks a master whether one has changed.";
    GROUP_SWITCHES: Counter "cacheboy_edge_group_switches_total" ["project", "group"]
        "Snapshots of a group that took another's place.";
    GROUP_KEPT: Counter "cacheboy_edge_group_kept_total" ["project", "group", "why"]
        "Rounds after which the old snapshot stayed unconfirmed, by reason (group-restless, group-masters-away).";
    GROUP_MIXED: Counter "cacheboy_edge_group_mixed_total" ["project", "group"]
        "Requests for a member that the snapshot the client began with has not: it got the newest.";
    GROUP_APART: Counter "cacheboy_edge_group_apart_total" ["project", "group", "why"]
        "Requests for files of a group that it could not serve, by reason (group-full, group-busy, group-too-large, group-restless, group-masters-away, or why the reply is not kept).";
}
