//! Metrics of the master role.

super::metrics! {
    TREE_UP: Gauge "cacheboy_master_tree_up" []
        "1 while the tree's marker file is there, 0 while the tree is lost and all answers are 503.";
    INDEX_FILES: Gauge "cacheboy_master_index_files" []
        "Files whose digest the content index knows.";
    INDEX_WRITE_ERRORS: Counter "cacheboy_master_index_write_errors_total" []
        "Failed attempts to write the content index to the state directory.";
    HASHED_FILES: Counter "cacheboy_master_hashed_files_total" []
        "Files read through to compute their digest: once each, and again after a change.";
    HASHED_BYTES: Counter "cacheboy_master_hashed_bytes_total" []
        "Bytes read to compute digests.";
    REQUESTS: Counter "cacheboy_master_requests_total" ["status"]
        "Requests answered, by HTTP status.";
    SENT_BYTES: Counter "cacheboy_master_sent_bytes_total" []
        "Bytes of file content handed to connections.";
    BROKEN_OFF: Counter "cacheboy_master_broken_off_total" []
        "Responses broken off because their file was changed in place or could not be read.";
}
